"""Remedies as the page says them: by the names of its buttons in the place of command lines, and with these buttons."""

from __future__ import annotations

import re
import shlex
from dataclasses import asdict, dataclass
from typing import Any

from fastapi.responses import JSONResponse


@dataclass(frozen=True)
class Fix:
    """A button that fixes what a remedy is for. do: as actions.js names it. tables: those that the command named."""

    do: str
    tables: tuple[str, ...] = ()


BUTTONS = {
    "sync": ("sync", "Sync now"),
    "verify": ("verify", "Verify"),
    "repair": ("repair", "Repair"),
    "maintain": ("maintain", "Maintain"),
    "snapshot": ("bootstrap", "Snapshot now"),
    "table resume": ("resume", "Resume"),
    "table resnapshot": ("resnapshot", "Snapshot at next sync"),
    "table pause": ("pause", "Pause"),
    "table skip-event": ("skip-event", "Skip the event"),
    "replay": ("replay", "Replay"),
    "unlock": ("unlock", "Unlock"),
    "versions pin": ("pin", "Pin"),
    "versions unpin": ("unpin", "Unpin"),
}
"""By command, what its button does, and the button's words."""
_OPTIONS = {"--config", "--tables", "--table", "--why", "--keys", "--at"}
"""Options that a button knows by itself, or asks for."""
_WORD = r"""(?:\$'(?:[^'\\]|\\.)*'|'[^']*'|\\'|[^\s;,()'\\])+"""
_COMMAND = re.compile(rf"(?:\brun )?\bbinlake ({'|'.join(BUTTONS)}|status)(?![\w-])((?: --[\w-]+(?: (?!--){_WORD})?)*)")


def on_the_page(remedy: str) -> tuple[str, tuple[Fix, ...]]:
    """Return a remedy with the names of buttons in the place of their commands, and these buttons, in order.

    A command without a button is left as it is.
    """
    fixes: dict[Fix, None] = {}

    def button(found: re.Match[str]) -> str:
        command, options = found.groups()
        if command == "status":
            return found[0] if options else "this page"
        given = dict(re.findall(rf" (--[\w-]+)(?: (?!--)({_WORD}))?", options))
        if not given.keys() <= _OPTIONS:
            return found[0]
        do, words = BUTTONS[command]
        fixes[Fix(do, _tables(given.get("--tables") or given.get("--table") or ""))] = None
        return f"“{words}”"

    return _COMMAND.sub(button, remedy), tuple(fixes)


def _tables(word: str) -> tuple[str, ...]:
    """Return the table that a word of a shell names; none for a pattern, a placeholder, or quoting unknown to shlex."""
    if not word or word.startswith("$'"):
        return ()
    (name,) = shlex.split(word)
    return (name,) if re.fullmatch(r"[^*?\[\]]+\.[^*?\[\]]+", name) and name != "DATABASE.TABLE" else ()


class Answer(JSONResponse):
    """JSON for the page: each ``remedy`` in its words, with its buttons, if it names some, as ``fixes``."""

    def render(self, content: Any) -> bytes:
        """Return the JSON text."""
        return super().render(_in_page_words(content))


def _in_page_words(content: Any) -> Any:
    if isinstance(content, dict):
        said = {key: _in_page_words(value) for key, value in content.items()}
        if isinstance(remedy := content.get("remedy"), str):
            said["remedy"], fixes = on_the_page(remedy)
            if fixes:
                said["fixes"] = [asdict(fix) for fix in fixes]
        return said
    return [_in_page_words(item) for item in content] if isinstance(content, (list, tuple)) else content
