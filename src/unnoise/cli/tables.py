"""A plain table for the terminal."""


def table(head: list[str], rows: list[list[str]], most: int = 60) -> str:
    """Columns of equal width; long cells are cut."""
    cut = [[cell if len(cell) <= most else cell[: most - 1] + "…" for cell in row] for row in [head, *rows]]
    widths = [max(len(row[i]) for row in cut) for i in range(len(head))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in cut]
    return "\n".join([lines[0], "  ".join("-" * width for width in widths), *lines[1:]])
