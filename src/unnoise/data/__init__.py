"""Files as states and back: tables, sequences, arrays."""

from unnoise.data.base import BadData, Format, Line
from unnoise.data.read import FORMATS, Reading, read

__all__ = ["FORMATS", "BadData", "Format", "Line", "Reading", "read"]
