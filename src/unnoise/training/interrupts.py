"""Ctrl-C or a request to end (SIGTERM) lets the update under way finish, so that training can save and return."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class Asked:
    """Whether an end was asked for."""

    def __init__(self) -> None:
        self.yes = False


@contextmanager
def polite(active: bool) -> Iterator[Asked]:
    """The first signal is noted; a second one acts as ever.  Without effect outside the main thread."""
    asked = Asked()
    if not active or threading.current_thread() is not threading.main_thread():
        yield asked
        return
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    def restore() -> None:
        for number, handler in before.items():
            signal.signal(number, handler)

    def note(number: int, frame: FrameType | None) -> None:
        asked.yes = True
        restore()

    for number in before:
        signal.signal(number, note)
    try:
        yield asked
    finally:
        restore()
