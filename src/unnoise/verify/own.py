"""What users put to `unnoise verify`: an option for each, as package.module:name, and the rows that it makes."""

from collections.abc import Callable, Iterator

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
    process = load_process(path)
    if process.by_generator:
        yield from simulated_rows(process, path)
        return
    subject = subject_of(process, path)
    yield from checks(subject, thorough)
    yield from own_process_checks(subject)


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
