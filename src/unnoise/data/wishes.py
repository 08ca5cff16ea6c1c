"""What people say of a column, and what its neighbours in the file say of forms that may be read in two ways."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from unnoise.data.around import PERIODS
from unnoise.data.columns import Column, Texts
from unnoise.data.composition import KINDS as COMPOSITION
from unnoise.data.globe import KINDS as GLOBE
from unnoise.data.left_out import LeftOut
from unnoise.data.written_dates import WrittenDates
from unnoise.data.written_numbers import WrittenNumbers

JOINT_KINDS = (*GLOBE, *COMPOSITION)  # of columns that are one leaf with others
KINDS = ("number", "count", "ordinal", "category", "boolean", "date", "angle", *JOINT_KINDS)
LEFT_OUT = ("identifier", "private", "text")
FORMS: dict[str, str | bool] = {"decimal comma": ",", "decimal point": ".", "day first": True, "month first": False}


@dataclass(frozen=True)
class Evidence:
    """What a file's columns, or people, say of forms that may be read in two ways."""

    decimal: str | None = None
    day_first: bool | None = None

    @classmethod
    def of(cls, columns: Iterable[Column | LeftOut]) -> "Evidence":
        """What those columns agree on that leave no doubt."""
        scales = [column.scale for column in columns if isinstance(column, Column)]
        signs = {scale.evidence for scale in scales if isinstance(scale, WrittenNumbers)} - {None}
        orders = {scale.evidence for scale in scales if isinstance(scale, WrittenDates)} - {None}
        return cls(signs.pop() if len(signs) == 1 else None, orders.pop() if len(orders) == 1 else None)


@dataclass(frozen=True)
class Wish:
    """What people say of a column."""

    kind: str | None = None
    order: list[Any] | None = None
    missing: tuple[str, ...] = ()
    form: str | None = None
    keep: bool = False
    period: float | None = None  # of an angle
    partners: tuple[str, ...] = ()  # the other columns of its leaf

    @classmethod
    def of(cls, values: Texts, wish: Any, keep: bool) -> "Wish":
        if not isinstance(wish, str | dict | None):
            raise values.error(f"has the override {wish!r}: write a kind, or {{kind: ..., missing: [...], order: [...]}}")
        said: dict[str, Any] = {"kind": wish} if isinstance(wish, str) else dict(wish or {})
        if unknown := sorted(set(said) - {"kind", "missing", "order", "form", "period", "with"}):
            raise values.error(f"has the unknown override {unknown}: use kind, missing, order, form, period or with")
        kind, order, form = said.get("kind"), said.get("order"), said.get("form")
        if order is not None and (kind not in (None, "ordinal", "category") or not isinstance(order, list)):
            raise values.error(f"has the override order = {order!r} with kind {kind}: give a list, and kind ordinal")
        if kind not in (None, *KINDS, *LEFT_OUT):
            raise values.error(f"is to be of kind {kind!r}: use one of {', '.join([*KINDS, *LEFT_OUT])}, or drop")
        if form is not None and form not in FORMS:
            raise values.error(f"is to be of the form {form!r}: use one of {', '.join(FORMS)}")
        listed = said.get("missing", [])
        missing = tuple(map(str, listed if isinstance(listed, list | tuple) else [listed]))
        period, partners = _period(values, kind, said.get("period")), _partners(values, kind, said.get("with"))
        return cls(kind, order, missing, form, keep, period, partners)

    def evidence(self, others: Evidence) -> Evidence:
        """With what is said of the form."""
        meant = FORMS[self.form] if self.form else None
        if isinstance(meant, bool):
            return replace(others, day_first=meant)
        return replace(others, decimal=meant) if meant else others


def _period(values: Texts, kind: str | None, said: Any) -> float | None:
    """A number, or a name for one."""
    if said is None:
        return None
    if kind not in ("angle", *GLOBE):
        raise values.error(f"has the override period = {said!r} with kind {kind}: a period belongs to kind angle")
    if kind in GLOBE and said not in ("degrees", "radians"):
        raise values.error(f"has the override period = {said!r} with kind {kind}: it is degrees or radians")
    try:
        period = PERIODS.get(said) or float(said)
    except (TypeError, ValueError):
        period = 0.0
    if not 0 < period < float("inf"):
        raise values.error(f"is to have the period {said!r}: use a number such as 24, or one of {', '.join(PERIODS)}")
    return period


def _partners(values: Texts, kind: str | None, said: Any) -> tuple[str, ...]:
    if said is None:
        return ()
    if kind not in JOINT_KINDS:
        raise values.error(f"has the override with = {said!r} with kind {kind}: it belongs to {', '.join(JOINT_KINDS)}")
    return tuple(map(str, said if isinstance(said, list | tuple) else [said]))
