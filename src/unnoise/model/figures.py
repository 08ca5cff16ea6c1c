"""Results that print well: the figures of an evaluation, and the page of a run."""

import html
from pathlib import Path
from typing import Any

from unnoise.evaluation.shown import shown


class Figures(dict[str, Any]):
    """The figures of an evaluation by name; they print as the command's table."""

    def __str__(self) -> str:
        return shown(self)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(str(self))}</pre>"


class Page(type(Path())):  # type: ignore[misc]
    """The path of a page, which shows itself in a notebook."""

    def _repr_html_(self) -> str:
        page = html.escape(self.read_text(encoding="utf-8"), quote=True)
        return f'<iframe srcdoc="{page}" style="width:100%;height:640px;border:1px solid #ddd"></iframe>'
