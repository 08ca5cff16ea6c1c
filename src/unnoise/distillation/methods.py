"""Methods of distillation by name, and how their students are sampled.

A student's own plan is a method of sampling and a number of steps: DDIM on the grid that it was distilled on, repeated jumps
to the data and back (`samplers.MultistepConsistency`), and for categories the default of the process.
"""

from inspect import Parameter, signature
from typing import Any

from unnoise.denoiser import AnyDenoiser
from unnoise.distillation.base import Distillation
from unnoise.distillation.consistency import Consistency
from unnoise.distillation.progressive import Progressive
from unnoise.processes import Gaussian, Process
from unnoise.samplers import DDIM, Leaves, MultistepConsistency, OneStep, Plan, default_sampler
from unnoise.samplers.defaults import default_leaf_method

METHODS: dict[str, type[Distillation]] = {"progressive": Progressive, "consistency": Consistency}
SAMPLED: dict[str, type[OneStep]] = {"progressive": DDIM, "consistency": MultistepConsistency}


def options_of(method: str) -> dict[str, Any]:
    """The options of a method with their defaults."""
    if method not in METHODS:
        raise ValueError(f"method = {method!r}: choose from {', '.join(METHODS)}")
    parameters = list(signature(METHODS[method]).parameters.values())[2:]
    return {p.name: None if p.default is Parameter.empty else p.default for p in parameters if p.name != "steps"}


def distillation(
    method: str, student: AnyDenoiser, teacher: AnyDenoiser, steps: int, options: dict[str, Any] | None = None
) -> Distillation:
    """The method of that name; what it does not know is refused."""
    known = options_of(method)
    if strange := [name for name in options or {} if name not in known]:
        raise ValueError(f"the method {method} has no option {strange[0]!r}: choose from {', '.join(known)}")
    own = {"steps": steps} if "steps" in signature(METHODS[method]).parameters else {}
    return METHODS[method](student, teacher, **own, **(options or {}))


def plan_of(method: str, process: Process, steps: int) -> Plan:
    """How a student is sampled."""
    numbers = SAMPLED[method]
    if isinstance(process, Gaussian):
        return Plan(numbers(), steps)
    if not any(isinstance(leaf, Gaussian) for leaf in process.leaves.values()):
        return default_sampler(process, steps)
    leaves = {
        n: numbers() if isinstance(leaf, Gaussian) else default_leaf_method(leaf) for n, leaf in process.leaves.items()
    }
    return Plan(Leaves(**leaves), steps)


def bounded(method: str, process: Process) -> str | None:
    """Why a student has no bound; None where the bound of its reverse process is one."""
    some = any(isinstance(leaf, Gaussian) for leaf in process.leaves.values() or [process])
    if method == "consistency" and some:
        return (
            "a consistency model of numbers says where a path ends, and no mean of x_0: it is no denoiser, and what it "
            "draws has no bound"
        )
    return None
