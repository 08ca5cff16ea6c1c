"""All scales: how texts are numbers, and how a saved column names it."""

from typing import Any

from unnoise.data.clock_times import ClockTimes
from unnoise.data.scales import Dates, Decimals, LongIntegers
from unnoise.data.written_dates import WrittenDates
from unnoise.data.written_numbers import WrittenNumbers

Scale = Decimals | LongIntegers | WrittenNumbers | Dates | WrittenDates | ClockTimes
_ALL = (Decimals, LongIntegers, WrittenNumbers, Dates, WrittenDates, ClockTimes)
SCALES: dict[str, Any] = {scale.__name__: scale for scale in _ALL}


def scale_to_json(scale: Scale | None) -> dict[str, Any] | None:
    return None if scale is None else {"of": type(scale).__name__, **vars(scale)}


def scale_from_json(data: dict[str, Any] | None) -> Scale | None:
    return SCALES[data["of"]](**{name: value for name, value in data.items() if name != "of"}) if data else None
