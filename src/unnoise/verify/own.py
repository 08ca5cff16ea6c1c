"""What users put to `unnoise verify`: an option for each, as package.module:name, and the rows that it makes."""

from collections.abc import Callable, Iterator
from functools import singledispatch

from unnoise.processes import FiniteSpeed, Process, Simulated
from unnoise.verify.generators import generator_rows
from unnoise.verify.own_denoiser import denoiser_rows
from unnoise.verify.own_prediction import prediction_rows
from unnoise.verify.own_process import own_process_checks
from unnoise.verify.own_sampler import sampler_rows
from unnoise.verify.own_times import times_rows
from unnoise.verify.own_weighting import weighting_rows
from unnoise.verify.rows import Row
from unnoise.verify.run import checks, load_process
from unnoise.verify.schedules import schedule_rows
from unnoise.verify.simulated_paths import simulated_rows
from unnoise.verify.subjects import subject_of


def process_rows(path: str, thorough: bool = False) -> Iterator[Row]:
    yield from rows_of_process(load_process(path), path, thorough)


@singledispatch
def rows_of_process(process: Process, path: str, thorough: bool) -> Iterator[Row]:
    """The rows of any process with a subject; one by its generator alone has none."""
    subject = subject_of(process, path)
    yield from checks(subject, thorough)
    yield from own_process_checks(subject)


@rows_of_process.register
def _(process: Simulated, path: str, thorough: bool) -> Iterator[Row]:
    yield from simulated_rows(process, path)


@rows_of_process.register
def _(process: FiniteSpeed, path: str, thorough: bool) -> Iterator[Row]:
    yield from checks(subject_of(process, path), thorough)


OWN: dict[str, Callable[[str, bool], Iterator[Row]]] = {
    "process": process_rows,
    "generator": generator_rows,
    "schedule": schedule_rows,
    "sampler": sampler_rows,
    "times": times_rows,
    "weighting": weighting_rows,
    "prediction": prediction_rows,
    "denoiser": denoiser_rows,
}
