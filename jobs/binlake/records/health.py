"""The health of a source, in one sentence that each of its views opens with. Pure.

Nothing is called good by its mere presence: the sentence says what was proved, when, and how far behind the lake may
be, or what is wrong.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime

from binlake.moment import duration_text, moment_text
from binlake.records.evidence import Evidence
from binlake.records.health_reasons import Advice, HealthLevel, differing, following, reasons
from binlake.report import counted


@dataclass(frozen=True)
class ComparedTables:
    """How many of the tables that follow the log were equal to the server when they were compared last, and how many
    differed. at_us: of the oldest of these comparisons; None where there is none."""

    tables: int
    equal: int
    differing: int
    at_us: int | None


@dataclass(frozen=True)
class Health:
    """The health of a source: its level, and what is to be done. advice: what is wrong, the worst first."""

    level: HealthLevel
    sentence: str
    advice: tuple[Advice, ...]
    compared: ComparedTables


def health_of(known: Evidence) -> Health:
    """Return the health of a source by all that is known of it."""
    advice = tuple(reasons(known))
    level: HealthLevel = advice[0].health if advice else "good"
    compared = _compared(known)
    sentence = _beginning_large(_first_line(advice[0].what)) if advice else _all_well(known, compared)
    return Health(level, sentence, advice, compared)


def _compared(known: Evidence) -> ComparedTables:
    tables = following(known)
    results = [known.compared[table] for table in tables if table in known.compared]
    results = [result for result in results if result.equal is not None]
    equal = sum(bool(result.equal) for result in results)
    oldest = min((result.at_us for result in results), default=None)
    return ComparedTables(len(tables), equal, len(differing(known)), oldest)


def _all_well(known: Evidence, compared: ComparedTables) -> str:
    return " ".join(filter(None, (_verified(known, compared), _lag(known), _headroom(known))))


def _verified(known: Evidence, compared: ComparedTables) -> str:
    if not compared.tables:
        return "No table follows the log."
    if compared.at_us is None:
        return f"{counted(compared.tables, 'table')}, not compared with the server yet."
    ago = duration_text((known.now_us - compared.at_us) / 1e6)
    tables = counted(compared.tables, "table")
    equal = "equals" if compared.tables == 1 else "equal"
    when = _clock(compared.at_us, known.now_us)
    said = f"{compared.equal:,} of {tables} {equal} the server at {when} (compared {ago} ago)"
    left = compared.tables - compared.equal
    return f"{said}; {left:,} not compared yet." if left else f"{said}."


def _clock(us: int, now_us: int) -> str:
    """Return the time of a day, with the day where it is another one."""
    moment, now = (datetime.fromtimestamp(time / 1e6, UTC) for time in (us, now_us))
    return f"{moment:%H:%M:%S} UTC" if moment.date() == now.date() else moment_text(us)


def _lag(known: Evidence) -> str:
    lag, follower = known.lag_seconds, known.status.follower
    if lag is None:
        return ""
    behind = f"{duration_text(lag)} behind"
    if follower and not follower.is_silent:
        return f"{behind}."
    if known.log and known.log.bytes_ahead == 0:
        return f"{behind} (asked {duration_text((known.now_us - known.log.at_us) / 1e6)} ago)."
    return f"At most {behind}."


def _headroom(known: Evidence) -> str:
    left = known.headroom_seconds
    return "" if left is None else f"{duration_text(left)} of log left."


def _first_line(text: str) -> str:
    first, _, more = text.partition("\n")
    return f"{first} …" if more else first


def _beginning_large(text: str) -> str:
    """Return a text as a sentence; a name at its beginning stays as it is written."""
    begun = text if re.match(r"\S*[._]\S", text) else text[:1].upper() + text[1:]
    return begun if begun.endswith((".", "…", "!", "?")) else f"{begun}."
