"""Figures and tables in plain text, for a terminal."""

from typing import Any


def table(head: list[str], rows: list[list[str]], most: int = 60) -> str:
    """Columns of equal width; long cells are cut."""
    cut = [[cell if len(cell) <= most else cell[: most - 1] + "…" for cell in row] for row in [head, *rows]]
    widths = [max(len(row[i]) for row in cut) for i in range(len(head))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in cut]
    return "\n".join([lines[0], "  ".join("-" * width for width in widths), *lines[1:]])


def shown(result: dict[str, Any]) -> str:
    """Figures line by line, a table of the samples beside the controls, one of draws given a column, and a verdict."""
    beside = {name: value for name, value in result.items() if name.startswith(("samples", "control_"))}
    apart = (*beside, "columns", "conditioned", "verdict", "cut_short")
    texts = [_lines({name: value for name, value in result.items() if name not in apart})]
    whys = [(name, why) for values in beside.values() for name, why in values.items() if name.endswith("_why")]
    texts[0] = "\n".join([texts[0], *(_lines({name: why}) for name, why in dict.fromkeys(whys))])
    if beside:
        names = [name for values in beside.values() for name in values]
        figures = list(dict.fromkeys(name for name in names if not name.endswith(("_why", "_is"))))
        rows = [[_words(name), *(_cell(values.get(name)) for values in beside.values())] for name in figures]
        texts.append(table(["", *(_words(name).removeprefix("control ") for name in beside)], rows))
    if result.get("conditioned"):
        texts.append(_conditioned(result["conditioned"]["given"]))
    if "cut_short" in result:
        texts.append("cut short for time: " + "; ".join(result["cut_short"]))
    if "verdict" in result:
        texts.append("verdict: " + result["verdict"]["words"])
    return "\n\n".join(texts)


def few_steps_table(result: dict[str, Any]) -> tuple[list[str], list[list[str]], list[str]]:
    """Figures of a distilled run: the head, the rows, and what is to be said of its steps and its bound."""
    sets = {name: value for name, value in result.items() if name.startswith(("teacher_in", "student", "control_"))}
    figures = list(dict.fromkeys(name for values in sets.values() for name in values))
    head = ["", *(_words(name) for name in sets)]
    rows = [[_words(name), *(_cell(values.get(name)) for values in sets.values())] for name in figures]
    notes = [f"Distilled from {result['from']} by {result['method']}: {result['steps']} steps for {result['many']}."]
    bound = result.get("bound_why") or result.get("bound_is")
    notes += [f"Its bound: {bound}."] if bound else []
    notes += [result["quality_why"]] if result.get("quality_why") else []
    return head, rows, notes


def few_steps_shown(result: dict[str, Any]) -> str:
    head, rows, notes = few_steps_table(result)
    return "\n".join([*notes, "", table(head, rows)])


def _conditioned(given: list[dict[str, Any]]) -> str:
    """Of each neighbourhood, the column whose mean differs most from that of the model's own rows."""
    names = ("mean", "mean_of_own_rows", "mean_of_real_rows", "in_errors", "from_real_in_errors")
    rows = [[e["given"], str(e["rows"]), e["column"], *(f"{e[name]:.4g}" for name in names)] for e in given]
    return table(["drawn given", "rows", "column", "mean", "own rows", "real rows", "errors apart", "from real"], rows)


def _lines(result: dict[str, Any], indent: str = "") -> str:
    lines = []
    for name, value in result.items():
        if isinstance(value, dict):
            lines += [f"{indent}{_words(name)}", _lines(value, indent + "  ")]
        else:
            lines.append(f"{indent + _words(name):24} {_cell(value)}")
    return "\n".join(lines)


def _words(name: str) -> str:
    return name.replace("_", " ")


def _cell(value: Any) -> str:
    if isinstance(value, list):
        return "; ".join(value) if value and isinstance(value[0], str) else " ... ".join(map(_cell, value))
    return f"{value:.5g}" if isinstance(value, float) else "-" if value is None else str(value)
