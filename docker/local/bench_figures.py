"""What benches measured, kept in .binlake/bench.json."""

from __future__ import annotations

import json
from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

from servers import PRIVATE

Figure = tuple[str, float, str]
"""What, how much, unit."""


def keep(figures: Sequence[Figure]) -> None:
    """Beside those of bench.py, in the place of the last run's."""
    path, names = PRIVATE / "bench.json", {name for name, _, _ in figures}
    others = json.loads(path.read_text()) if path.exists() else []
    made = [{"what": name, "figure": value, "unit": unit} for name, value, unit in figures]
    path.write_text(json.dumps([other for other in others if other["what"] not in names] + made))


def show(title: str, figures: Sequence[Figure]) -> None:
    """As a table on standard output."""
    table = Table(title=title)
    table.add_column("what")
    table.add_column("figure", justify="right")
    table.add_column("unit")
    for name, value, unit in figures:
        table.add_row(name, f"{value:,.{2 if unit == 'times' else 1}f}", unit)
    Console().print(table)
