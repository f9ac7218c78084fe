"""Changes of a table's rows between two batches, as a query over the table at both.

| column                   | holds |
|--------------------------|-------|
| ``operation``            | ``insert``, ``update`` or ``delete``: what the row's changes come to |
| ``rows``                 | how many rows are meant: 1, or in a table without a key that many equal ones |
| ``origin``               | ``versions`` where both versions were compared, ``log`` where the table's log was read |
| ``before_…``, ``after_…``| the row's values in both; NULL where it isn't |

Versions are exact, whatever changed the table. A log is asked where files of the earlier version are gone: it is as
exact if it has every mutation between, and the table had one shape.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from binlake.names import ansi_quote

LOGGED = frozenset({"insert", "update", "delete", "repair"})
"""Operations of a log that change one row."""
_THERE = ansi_quote("there ")
_FLOATING = ("float", "double")


@dataclass(frozen=True)
class TableSide:
    """A table's rows before or after. relation: how a query names it. columns: Delta types by name."""

    relation: str
    columns: Mapping[str, str]


@dataclass(frozen=True)
class LoggedRows:
    """The rows of a table's log behind a batch, up to another one. relation: how a query names the log."""

    relation: str
    first: int
    last: int
    columns: Mapping[str, str]
    key: Sequence[str]

    def side(self, which: str) -> TableSide:
        """Return the rows of changed keys as they were before, or are after, by the first or last image of each."""
        is_before = which == "before"
        images = " UNION ALL ".join(self._images(name, number) for number, name in enumerate(("before", "after")))
        order = ", ".join(f"{name}{'' if is_before else ' DESC'}" for name in _ORDER)
        numbered = f"row_number() OVER (PARTITION BY {_listed(self.key)} ORDER BY {order}) AS {_NUMBER}"
        wanted = f"{_NUMBER} = 1 AND {_SIDE} = {0 if is_before else 1}"
        rows = f"SELECT {_listed(self.columns)} FROM (SELECT *, {numbered} FROM ({images}) AS i) AS n WHERE {wanted}"
        return TableSide(f"({rows})", self.columns)

    def _images(self, which: str, number: int) -> str:
        values = ", ".join(f"{ansi_quote(f'{which}_{name}')} AS {ansi_quote(name)}" for name in self.columns)
        there = " AND ".join(f"{ansi_quote(f'{which}_{name}')} IS NOT NULL" for name in self.key)
        place = f'"batch" AS {_BATCH}, "position" AS {_POSITION}, {number} AS {_SIDE}'
        between = f'"batch" > {self.first} AND "batch" <= {self.last}'
        return f"SELECT {values}, {place} FROM {self.relation} WHERE {between} AND {there}"


_BATCH, _POSITION, _SIDE, _NUMBER = (ansi_quote(f"{name} ") for name in ("batch", "position", "side", "number"))
_ORDER = (_BATCH, _POSITION, _SIDE)


def changed_rows(before: TableSide, after: TableSide, key: Sequence[str], origin: str) -> str:
    """Return the query for the rows that differ. key: of the table at both; empty where there is none."""
    return _by_key(before, after, key, origin) if key else _counted(before, after, origin)


def _by_key(before: TableSide, after: TableSide, key: Sequence[str], origin: str) -> str:
    same_key = " AND ".join(f"b.{ansi_quote(name)} = a.{ansi_quote(name)}" for name in key)
    names = dict.fromkeys([*after.columns, *before.columns])
    differs = " OR ".join(f"({_differs(name, before.columns, after.columns)})" for name in names)
    operation = f"CASE WHEN b.{_THERE} IS NULL THEN 'insert' WHEN a.{_THERE} IS NULL THEN 'delete' ELSE 'update' END"
    shown = [
        f"{side}.{ansi_quote(name)} AS {ansi_quote(f'{which}_{name}')}"
        for side, which, columns in (("b", "before", before.columns), ("a", "after", after.columns))
        for name in columns
    ]
    sides = (f"(SELECT *, true AS {_THERE} FROM {side.relation} AS s)" for side in (before, after))
    joined = f"{next(sides)} AS b FULL OUTER JOIN {next(sides)} AS a ON {same_key}"
    return (
        f"SELECT {operation} AS operation, CAST(1 AS BIGINT) AS \"rows\", '{origin}' AS origin, {', '.join(shown)} "
        f"FROM {joined} WHERE b.{_THERE} IS NULL OR a.{_THERE} IS NULL OR {differs}"
    )


def _differs(name: str, before: Mapping[str, str], after: Mapping[str, str]) -> str:
    """Return the condition that a column's values differ; one that isn't there is as NULL."""
    quoted = ansi_quote(name)
    if name not in before:
        return f"a.{quoted} IS NOT NULL"
    if name not in after:
        return f"b.{quoted} IS NOT NULL"
    if before[name] in _FLOATING or after[name] in _FLOATING:  # zeros of two signs are two values
        return f"CAST(b.{quoted} AS VARCHAR) IS DISTINCT FROM CAST(a.{quoted} AS VARCHAR)"
    return f"b.{quoted} IS DISTINCT FROM a.{quoted}"


def _counted(before: TableSide, after: TableSide, origin: str) -> str:
    """Return the query for a table without a key: which rows are there more or less often than before."""
    names = list(dict.fromkeys([*after.columns, *before.columns]))
    kinds = {**after.columns, **before.columns}
    texts = {name: ansi_quote(f"{name} as text") for name in names if kinds[name] in _FLOATING}

    def rows(side: TableSide, times: int) -> str:
        values = [f"{ansi_quote(name) if name in side.columns else 'NULL'} AS {ansi_quote(name)}" for name in names]
        values += [
            f"{f'CAST({ansi_quote(name)} AS VARCHAR)' if name in side.columns else 'NULL'} AS {text}"
            for name, text in texts.items()
        ]
        return f"SELECT {', '.join(values)}, CAST({times} AS BIGINT) AS {_NUMBER} FROM {side.relation} AS s"

    # A group's own value has no sign where it is zero, so numbers are taken from its rows.
    grouped = ", ".join(texts.get(name, ansi_quote(name)) for name in names)
    values = ", ".join(
        f"max({ansi_quote(name)}) AS {ansi_quote(name)}" if name in texts else ansi_quote(name) for name in names
    )
    counted = (
        f"SELECT {values}, sum({_NUMBER}) AS {_NUMBER} FROM ({rows(after, 1)} UNION ALL {rows(before, -1)}) AS u "
        f"GROUP BY {grouped} HAVING sum({_NUMBER}) <> 0"
    )
    shown = [
        f"CASE WHEN {_NUMBER} {sign} 0 THEN {ansi_quote(name)} END AS {ansi_quote(f'{which}_{name}')}"
        for which, sign, columns in (("before", "<", before.columns), ("after", ">", after.columns))
        for name in columns
    ]
    return (
        f"SELECT CASE WHEN {_NUMBER} > 0 THEN 'insert' ELSE 'delete' END AS operation, abs({_NUMBER}) AS \"rows\", "
        f"'{origin}' AS origin, {', '.join(shown)} FROM ({counted}) AS c"
    )


def _listed(names: Mapping[str, str] | Sequence[str]) -> str:
    return ", ".join(map(ansi_quote, names))
