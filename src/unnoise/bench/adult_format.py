"""Makes `AdultLike` known by its name, for a command in a process of its own: `unnoise sample RUN --load` this module."""

from unnoise.bench.adult_like import AdultLike
from unnoise.data.registry import register_format

register_format(AdultLike)
