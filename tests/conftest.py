"""Shape annotations are checked in every test: the import hook wraps the package's functions.

But for `unnoise.kernels`: Triton reads the source of a kernel and the names around it, which a wrapped function hides.
"""

from importlib.util import find_spec
from pkgutil import iter_modules

from jaxtyping import install_import_hook

PARTS = [part.name for part in iter_modules(find_spec("unnoise").submodule_search_locations)]
install_import_hook([f"unnoise.{name}" for name in PARTS if name != "kernels"], "beartype.beartype")

import pytest  # noqa: E402
import torch  # noqa: E402


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(0)
    torch.set_num_threads(1)
