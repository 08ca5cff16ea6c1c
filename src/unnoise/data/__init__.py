"""Files as states and back: tables, sequences, arrays, and formats of one's own."""

from unnoise.data.base import BY_BOTH, BY_CONTENT, BY_NAME, NO, BadData, Bins, Format, Line
from unnoise.data.read import read
from unnoise.data.reading import Reading
from unnoise.data.registry import FORMATS, register_format

__all__ = [
    "BY_BOTH",
    "BY_CONTENT",
    "BY_NAME",
    "FORMATS",
    "NO",
    "BadData",
    "Bins",
    "Format",
    "Line",
    "Reading",
    "read",
    "register_format",
]
