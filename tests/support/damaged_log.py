"""Damage to the log of a Delta table, as a foreign writer or a broken disk leaves it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from deltalake import DeltaTable


def change_statistics(table_path: str, change: Callable[[dict[str, Any]], object], *, files: int = 1_000) -> int:
    """Change the statistics of the newest data files of a table, in the commits that added them; return how many."""
    there, changed = {uri.rpartition("/")[2] for uri in DeltaTable(table_path).file_uris()}, 0
    for commit in sorted(Path(table_path, "_delta_log").glob("0*.json"), reverse=True):
        actions = [json.loads(line) for line in commit.read_text().split("\n") if line]
        for action in actions:
            if changed < files and action.get("add", {}).get("path") in there:
                there.discard(action["add"]["path"])
                statistics = json.loads(action["add"]["stats"])
                change(statistics)
                action["add"]["stats"] = json.dumps(statistics)
                changed += 1
        commit.write_text("\n".join(map(json.dumps, actions)) + "\n")
    return changed
