"""The front door: a model of any data in two lines."""

from unnoise.model import table_forms  # noqa: F401  (it registers the forms of tables)
from unnoise.model.estimator import NotFitted
from unnoise.model.forms import Form, register_form
from unnoise.model.model import Model, fit, load

__all__ = ["Form", "Model", "NotFitted", "fit", "load", "register_form"]
