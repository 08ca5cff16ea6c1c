"""Shape annotations are checked in every test: the import hook wraps the package's functions."""

from jaxtyping import install_import_hook

install_import_hook("unnoise", "beartype.beartype")

import pytest  # noqa: E402
import torch  # noqa: E402


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(0)
    torch.set_num_threads(1)
