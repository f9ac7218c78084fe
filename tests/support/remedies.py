"""What an error's remedy says is done: commands and grants in its text as they stand, else what this table knows."""

from __future__ import annotations

import re
import shlex
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from operated_source import ACCOUNT, DATABASES, OperatedSource, copy_folder

Act = Callable[[OperatedSource], object]

_VERBS = "snapshot|sync|repair|verify|maintain|unlock|table resnapshot|table resume|table skip-event"
_COMMAND = re.compile(rf"binlake (?P<verb>{_VERBS})(?P<rest>[^;\n]*)")
_GRANT = re.compile(
    r"GRANT (?P<what>[A-Z_, ]+?)(?P<columns> \([^)]*\))?(?: ON (?P<on>[^\s;,]+))?(?: TO|;|,| on|$|\s+to)"
)
_OPTIONS = {"--tables", "--table", "--at", "--lock", "--keys"}
_MILDEST_FIRST = (
    "repair", "table resume", "sync", "table resnapshot", "snapshot",
    "unlock", "table skip-event", "verify", "maintain",
)  # fmt: skip


@dataclass(frozen=True)
class Remedy:
    """Something to do. text: as it was said, or what is known of it."""

    text: str
    act: Act


def in_text(said: str) -> list[Remedy]:
    """Return what the text of a run asks for, each once, in the order in which it is to be tried: what the server's
    owner has to give first, then commands, the mildest first."""
    advice = "\n".join(_advice(said))
    found = [*_known(advice), *_grants(advice), *_moves(advice), *_commands(advice)]
    return list({remedy.text: remedy for remedy in found}.values())


def _advice(said: str) -> Iterator[str]:
    """Yield what stands behind arrows, with the lines that belong to it."""
    is_advice = False
    for line in said.split("\n"):
        if line.lstrip().startswith("→"):
            is_advice = True
            yield line.partition("→")[2].strip()
        elif is_advice and line.startswith("    "):
            yield line.strip()
        else:
            is_advice = False


def _commands(advice: str) -> list[Remedy]:
    commands: dict[str, list[str]] = {}
    for match in _COMMAND.finditer(advice):
        verb = match["verb"]
        options = list(_options(match["rest"]))
        if verb.startswith("table ") or verb == "unlock":
            options += ["--who", "somebody", "--why", "the remedy"]
        commands.setdefault(" ".join([*verb.split(), *options]), [*verb.split(), *options])
    ordered = sorted(commands.values(), key=_rank)
    return [Remedy("binlake " + shlex.join(words), _running(words)) for words in ordered]


def _rank(words: Sequence[str]) -> int:
    verb = " ".join(words[:2]) if words[0] == "table" else words[0]
    return _MILDEST_FIRST.index(verb)


def _options(rest: str) -> Iterator[str]:
    """Yield the options that follow a command in a sentence."""
    try:
        words = shlex.split(rest)
    except ValueError:
        words = rest.split()
    while words and words[0].startswith("--"):
        option = words.pop(0)
        if option.rstrip(",.:") == "--begin":
            yield "--begin"
        values: list[str] = []
        while words and not words[0].startswith("--") and (not values or option == "--tables") and option != "--begin":
            if option == "--tables" and values and "." not in words[0]:
                return
            values.append(words.pop(0).rstrip(",.:"))
        if option in _OPTIONS and values and values[0] not in ("TABLE", "FIRST..LAST", "…"):
            yield from (option, *values)


def _running(words: Sequence[str]) -> Act:
    return lambda source: source.run(*words)


def _grants(advice: str) -> Iterator[Remedy]:
    for match in _GRANT.finditer(advice):
        what, on = match["what"].strip(), (match["on"] or "").rstrip(".")
        columns = match["columns"] or ""
        if on in ("", "the"):
            on = ""
        places = [on] if on else [f"{name}.*" for name in DATABASES]
        for place in places:
            statement = f"GRANT {what}{columns} ON {place} TO {ACCOUNT}"
            yield Remedy(statement, lambda source, statement=statement: source.execute(statement))  # type: ignore[misc]


def _moves(advice: str) -> Iterator[Remedy]:
    for match in re.finditer(r"move (/.+?) away", advice):
        place = match[1]
        yield Remedy(match[0], lambda _, place=place: shutil.rmtree(place, ignore_errors=True))  # type: ignore[misc]


def _restart_with_log(source: OperatedSource) -> None:
    source.server.restart(log_bin="binlog", skip_log_bin=None)


def _without_filter(source: OperatedSource) -> None:
    source.server.restart(binlog_ignore_db=None, binlog_do_db=None)


def _setting(name: str, value: str) -> Act:
    return lambda source: source.execute(f"SET GLOBAL {name} = {value}")


def _restore(source: OperatedSource) -> None:
    if source.backup.exists():
        copy_folder(source.backup, source.metadata)


_KNOWN: list[tuple[str, Act]] = [
    (r"log_bin=ON|skip.log.bin", _restart_with_log),
    (r"binlog[-_](ignore|do)[-_]db", _without_filter),
    (r"log_(slave|replica)_updates", lambda source: source.server.restart(**source.logging(is_on=True))),
    (r"binlog_row_image ?= ?'?FULL", _setting("binlog_row_image", "FULL")),
    (r"binlog_row_metadata ?= ?'?FULL", _setting("binlog_row_metadata", "FULL")),
    (r"binlog_format ?= ?'?ROW", _setting("binlog_format", "ROW")),
    (r"partial_revokes|check the password|wait for|when that|is less busy|let their application end|lock(s|ed)? |"
     r"account's limit|max_connections|the account is locked|has ended|SHOW PROCESSLIST|gtid_mode step by step|"
     r"default role|SET DEFAULT ROLE|without GTID", lambda source: source.end_operation()),
    (r"run again|run binlake \w+ again|^nothing|snapshotted again by itself", lambda source: source.run("sync")),
    (r"take a new snapshot of the table", lambda source: source.run("snapshot")),
    (r"restore it from a backup|restore the folder|bring .* back", _restore),
]  # fmt: skip
"""What a remedy asks for that no command of ours does."""


def _known(advice: str) -> Iterator[Remedy]:
    for pattern, act in _KNOWN:
        if match := re.search(pattern, advice, re.M):
            yield Remedy(f"({match.group(0).strip()})", act)
