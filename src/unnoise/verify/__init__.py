"""Every process x prediction x objective, and every sampler's order, against exact answers: what `unnoise verify` prints."""

from unnoise.verify.families import FAMILIES
from unnoise.verify.orders import cases, measured
from unnoise.verify.rows import Place, Row, render
from unnoise.verify.run import checks, load_process, subjects, user_subject
from unnoise.verify.subjects import Subject, subject_of

__all__ = [
    "FAMILIES",
    "Place",
    "Row",
    "Subject",
    "cases",
    "checks",
    "load_process",
    "measured",
    "render",
    "subject_of",
    "subjects",
    "user_subject",
]
