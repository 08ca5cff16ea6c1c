"""A plain table for the terminal."""

from unnoise.evaluation.shown import table

__all__ = ["table"]
