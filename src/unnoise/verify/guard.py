"""Checks that go on: a computation that stops becomes a row that fails, and names what was computed.

A check is a generator of rows.  What it raises, it raises on the way to its next row; that row is then told as failed, under
the check's own quantity and where in the code it stopped, and the checks after it are made.  An answer that was never
written (`NotImplementedError`) is no failure: the row says that it was not checked.
"""

import traceback
from collections.abc import Callable, Iterator
from functools import wraps
from pathlib import Path
from typing import Any

from unnoise.verify.rows import Place, Row

Check = Callable[..., Iterator[Row]]


def guarded(quantity: str) -> Callable[[Check], Check]:
    """For a check whose arguments hold a `Place`, or else a subject with a name; `quantity` says what it computes."""

    def decorate(check: Check) -> Check:
        @wraps(check)
        def rows(*arguments: Any, **options: Any) -> Iterator[Row]:
            try:
                yield from check(*arguments, **options)
            except NotImplementedError as error:
                yield _place(arguments).unchecked(quantity, str(error) or "not implemented")
            except Exception as error:
                yield _place(arguments).failed(f"{quantity}: stopped in {where(error)}", error)

        return rows

    return decorate


def _place(arguments: tuple[Any, ...]) -> Place:
    places = [argument for argument in arguments if isinstance(argument, Place)]
    return places[0] if places else Place(arguments[0].name)


def where(error: Exception) -> str:
    """The innermost function that is not torch's, with its file and line."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if "torch" not in Path(frame.filename).parts] or list(frames)
    return f"{own[-1].name} ({Path(own[-1].filename).name}:{own[-1].lineno})" if own else "an unknown place"


def refused(error: Exception) -> bool:
    """Whether something was refused on purpose, rather than broken on the way: by a TypeError or a ValueError (such as
    `Unanswered` and `InexactConversion`) that the innermost line, none of torch's, raises."""
    frames = traceback.extract_tb(error.__traceback__)
    if not isinstance(error, (TypeError, ValueError)) or not frames or "torch" in Path(frames[-1].filename).parts:
        return False
    return (frames[-1].line or "").startswith("raise ")


def refusal(place: Place, quantity: str, error: Exception) -> Row:
    """What is refused is not checked, and what breaks fails."""
    if refused(error):
        return place.unchecked(quantity, str(error))
    return place.failed(f"{quantity}: stopped in {where(error)}", error)
