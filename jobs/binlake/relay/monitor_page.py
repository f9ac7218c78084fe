"""The relay's monitoring page, as HTML without scripts. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import Any

from binlake.moment import moment_text
from binlake.relay.usage import RelayStatus, UsageCounts

_OPERATIONS = {1: "insert", 2: "update", 4: "delete"}
_DISCARDS = {0: "the newest", 1: "the oldest", 2: "the newest"}
_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 75rem; padding: 0 1rem; color: #1c2733;
  background: #fff; }
h1 { font-size: 1.4rem; } h2 { font-size: 1.1rem; margin-top: 2rem; } h3 { font-size: 1rem; margin: 1.2rem 0 0.3rem; }
table { border-collapse: collapse; margin: 0.4rem 0 1rem; }
th, td { text-align: left; padding: 0.2rem 1rem 0.2rem 0; border-bottom: 1px solid #d8dee4; vertical-align: top; }
th { font-weight: 600; color: #57636f; } td.n, th.n { text-align: right; font-variant-numeric: tabular-nums; }
code { overflow-wrap: anywhere; }
@media (prefers-color-scheme: dark) { body { color: #dde4ea; background: #14191f; } th { color: #9aa7b3; }
  th, td { border-color: #2e3843; } }
"""
REFRESHED_EVERY = 5
"""Seconds after which a browser loads the page again."""


def page(status: RelayStatus) -> str:
    """Return the page."""
    parts = [_server(status), _clients(status), _usage(status), _schemas(status)]
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="refresh" content="{REFRESHED_EVERY}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(status.source)}: binlake relay</title><style>{_STYLE}</style></head>\n"
        f"<body><h1>The relay of {escape(status.source)}</h1>\n{''.join(parts)}</body></html>\n"
    )


def _server(status: RelayStatus) -> str:
    rows = [
        ("Newest recorded batch", f"{status.newest_batch:,}"),
        ("It ends at", status.position),
        ("GTIDs", status.gtid_set or "–"),
        ("Oldest batch that can be read", f"{status.oldest_batch:,}"),
        ("Oldest batch that a client needs", f"{status.needed_batch:,}"),
        ("Relay began", moment_text(status.began_us)),
        ("Now", moment_text(status.at_us)),
    ]
    cells = "".join(f"<tr><th>{escape(name)}</th><td><code>{escape(value)}</code></td></tr>" for name, value in rows)
    return f"<h2>Position</h2><table>{cells}</table>\n"


def _clients(status: RelayStatus) -> str:
    if not status.clients:
        return "<h2>Clients</h2><p>No client is registered.</p>\n"
    head = ["Client", "Counted up to batch", "In queue", "Largest queue", "Served", "Discarded"]
    rows = [
        [client["name"], *(client[key] for key in ("batch", "queued", "largest_queue", "served", "discarded"))]
        for client in status.clients
    ]
    return f"<h2>Clients</h2>{_table(head, rows)}" + "".join(map(_client, status.clients))


def _client(client: dict[str, Any]) -> str:
    filters = [
        [
            f"{wanted['schema']}.{wanted['table']}",
            ", ".join(word for bit, word in _OPERATIONS.items() if wanted["operations"] & bit),
            wanted["queue_limit"] or "none",
            _DISCARDS[wanted["discard"]] if wanted["queue_limit"] else "–",
        ]
        for wanted in client["filters"]
    ]
    events = [
        [
            _OPERATIONS[event["type"]], event["table"], f"{event['file']}:{event['position']}",
            moment_text(event["committed_us"]), moment_text(event["served_us"]),
            f"{(event['served_us'] - event['committed_us']) / 1e6:.2f} s",
        ]
        for event in reversed(client["last_events"])
    ]  # fmt: skip
    name = escape(client["name"])
    heads = ["Table", "Operations", "Limit", "A full queue drops"], [
        "Event", "Table", "Position", "Committed", "Served", "Delay"
    ]  # fmt: skip
    served = _table(heads[1], events) if events else "<p>Nothing was served yet.</p>"
    return f"<h3>{name}: filters</h3>{_table(heads[0], filters)}<h3>{name}: last events</h3>{served}\n"


def _usage(status: RelayStatus) -> str:
    if not status.tables:
        return "<h2>Use of tables</h2><p>No mutation was recorded since the relay began.</p>\n"
    words = ("inserted", "updated", "deleted")
    head = ["Table", *(f"{when}: {word}" for when in ("Total", "24 h", "1 h") for word in words)]
    rows = [[usage.table, *_numbers(usage.total, usage.day, usage.hour)] for usage in status.tables]
    return f"<h2>Use of tables since the relay began</h2>{_table(head, rows)}\n"


def _numbers(*counts: UsageCounts) -> list[int]:
    return [number for part in counts for number in part]


def _schemas(status: RelayStatus) -> str:
    rows = [[table.table, ", ".join(table.columns), ", ".join(table.key) or "none"] for table in status.schemas]
    return f"<h2>Schemas</h2>{_table(['Table', 'Columns', 'Key'], rows)}\n"


def _table(head: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    names = "".join(f"<th>{escape(name)}</th>" for name in head)
    body = "".join(f"<tr>{''.join(map(_cell, row))}</tr>" for row in rows)
    return f"<table><tr>{names}</tr>{body}</table>"


def _cell(value: Any) -> str:
    return f'<td class="n">{value:,}</td>' if isinstance(value, int) else f"<td>{escape(str(value))}</td>"
