"""The fixed set: pairs of a name and a function without arguments that returns a tree of results."""

from collections.abc import Iterator
from itertools import chain

from . import bounds, likelihoods, parts, runs, sample_options, samples
from .leaves import Case


def cases() -> Iterator[Case]:
    return chain.from_iterable(part.cases() for part in (parts, bounds, likelihoods, samples, sample_options, runs))
