"""Every process x prediction x objective, and every sampler's order, against exact answers: what `unnoise verify` prints."""

from unnoise.verify.families import FAMILIES
from unnoise.verify.generators import Operators
from unnoise.verify.orders import cases, measured
from unnoise.verify.own import OWN
from unnoise.verify.rows import Place, Row, render
from unnoise.verify.run import checks, checks_of, load_process, subjects
from unnoise.verify.subjects import Subject, subject_of

__all__ = [
    "FAMILIES",
    "OWN",
    "Operators",
    "Place",
    "Row",
    "Subject",
    "cases",
    "checks",
    "checks_of",
    "load_process",
    "measured",
    "render",
    "subject_of",
    "subjects",
]
