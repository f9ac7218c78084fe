"""The relay's monitoring page, as HTML without scripts. Pure."""

from __future__ import annotations

from html import escape
from typing import Any

from binlake.moment import moment_text
from binlake.relay.html_pages import html_page, html_table
from binlake.relay.usage import RelayStatus, UsageCounts

_OPERATIONS = {1: "insert", 2: "update", 4: "delete"}
_DISCARDS = {0: "the newest", 1: "the oldest", 2: "the newest"}
REFRESHED_EVERY = 5
"""Seconds after which a browser loads the page again."""


def page(status: RelayStatus) -> str:
    """Return the page."""
    parts = [_server(status), _clients(status), _usage(status), _schemas(status)]
    title, heading = f"{status.source}: binlake relay", f"The relay of {status.source}"
    return html_page(title, heading, parts, refreshed_every=REFRESHED_EVERY)


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
    return f"<h2>Clients</h2>{html_table(head, rows)}" + "".join(map(_client, status.clients))


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
    served = html_table(heads[1], events) if events else "<p>Nothing was served yet.</p>"
    return f"<h3>{name}: filters</h3>{html_table(heads[0], filters)}<h3>{name}: last events</h3>{served}\n"


def _usage(status: RelayStatus) -> str:
    if not status.tables:
        return "<h2>Use of tables</h2><p>No mutation was recorded since the relay began.</p>\n"
    words = ("inserted", "updated", "deleted")
    head = ["Table", *(f"{when}: {word}" for when in ("Total", "24 h", "1 h") for word in words)]
    rows = [[usage.table, *_numbers(usage.total, usage.day, usage.hour)] for usage in status.tables]
    return f"<h2>Use of tables since the relay began</h2>{html_table(head, rows)}\n"


def _numbers(*counts: UsageCounts) -> list[int]:
    return [number for part in counts for number in part]


def _schemas(status: RelayStatus) -> str:
    rows = [[table.table, ", ".join(table.columns), ", ".join(table.key) or "none"] for table in status.schemas]
    return f"<h2>Schemas</h2>{html_table(['Table', 'Columns', 'Key'], rows)}\n"
