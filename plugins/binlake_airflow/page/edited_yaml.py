"""The text of a source's YAML that is edited: its difference, what is wrong with it, and how it is saved."""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from difflib import unified_diff
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any

from binlake.config import PipelineConfig, config_of, yaml_file
from binlake.config.yaml_file import KeyPath, YamlFile
from binlake.errors import ConfigurationError, KeyProblem, UsageError
from binlake.feeds.feeds_file import understand
from binlake_airflow.page.settable import changed_keys, is_settable, lets_more_out

OUTSIDE = (
    "isn't changed here, but in the file itself: it says where the lake is, who connects, what runs, or who sees values"
)
_FOR_FEW = "lets more leave the server, which takes the right to add a source: to edit DAGs and make connections"


@dataclass(frozen=True)
class ReadYaml:
    """The file of a source as it was read. path: without symbolic links. mark: differs where the content does."""

    path: Path
    text: str
    mark: str


@dataclass(frozen=True)
class EditedYaml:
    """A new text of a source's YAML.

    config: what it means; None where something is wrong. changed: the keys with other values. problems: by line.
    """

    text: str
    diff: list[str]
    changed: list[str]
    config: PipelineConfig | None
    problems: list[KeyProblem]


def read(file: Path) -> ReadYaml:
    """Return a file's text. Raises UsageError if it can't be read, or isn't UTF-8."""
    try:
        path = file.resolve()
        content = path.read_bytes()
        return ReadYaml(path, content.decode(), mark_of(content))
    except OSError as error:
        raise UsageError(f"can't read {file}: {error.strerror}", remedy="let Airflow's account read it") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"{file} isn't UTF-8", remedy="edit it where it is") from error


def mark_of(content: bytes) -> str:
    """Return a mark that differs where the content does."""
    return hashlib.sha256(content).hexdigest()


def edited(now: ReadYaml, text: str, *, may_add: bool) -> EditedYaml:
    """Return the new text of a file, and what is wrong with it. may_add: the user may add a source."""

    def refused(new: YamlFile, changed: list[KeyPath]) -> list[KeyProblem]:
        return _refused(old, new, changed, may_add=may_add)

    old = yaml_file.parsed(now.text.encode(), now.path).document
    return compared(now, old, text, refused)


def compared(
    now: ReadYaml, old: Mapping[str, Any], text: str, refused: Callable[[YamlFile, list[KeyPath]], list[KeyProblem]]
) -> EditedYaml:
    """Return the new text of a file. old: what it holds as it is. refused: returns what the user may not change, of
    the new one and the keys that are changed."""
    text = _as_lines_of(now.text, text)
    names = (f"{now.path.name}, as it is", f"{now.path.name}, edited")
    diff = list(unified_diff(now.text.splitlines(), text.splitlines(), *names, lineterm=""))
    config: PipelineConfig | None = None
    changed: list[KeyPath] = []
    problems: list[KeyProblem] = []
    try:
        new = yaml_file.parsed(text.encode(), now.path)
        changed = changed_keys(old, new.document)
        problems += refused(new, changed)
        config = config_of(new)
        understand(now.path, config.feeds)
    except ConfigurationError as error:
        wrong = error.problems or (KeyProblem(0, "", error.message),)
        keys = {problem.key for problem in wrong}
        problems = [*(problem for problem in problems if problem.key not in keys), *wrong]
    good = None if problems else config
    return EditedYaml(text, diff, [".".join(map(str, key)) for key in changed], good, problems)


def _as_lines_of(before: str, text: str) -> str:
    """Return a text with the line ends of the one before it, as browsers know only their own, and one at its end."""
    lines = "\n".join(text.splitlines()) + "\n"
    return lines.replace("\n", "\r\n") if "\r\n" in before else lines


def _refused(old: Mapping[str, Any], new: YamlFile, changed: list[KeyPath], *, may_add: bool) -> list[KeyProblem]:
    """Return the changed keys that the user may not change here."""
    refused = {key: OUTSIDE for key in changed if not is_settable(key)}
    if not may_add:
        refused |= dict.fromkeys(lets_more_out(old, new.document), _FOR_FEW)
    return [KeyProblem(new.line(key), ".".join(map(str, key)), text) for key, text in refused.items()]


def save(now: ReadYaml, text: str) -> None:
    """Replace the file by the new text, whole or not at all. Raises UsageError if somebody changed it meanwhile, or it
    can't be written."""
    try:
        with _alone(now.path.parent):
            if mark_of(now.path.read_bytes()) != now.mark:
                raise changed_meanwhile(now.path)
            _replace(now.path, text)
    except OSError as error:
        what = f"can't write {now.path}: {error.strerror}"
        raise UsageError(what, remedy="let the API server's account write the folder, or edit the file") from error


def changed_meanwhile(path: Path) -> UsageError:
    """Return the error of a file that was changed since its text was shown."""
    return UsageError(
        f"{path.name} was changed since it was opened here: nothing is saved",
        remedy="copy your text, open the page again, and put your changes into what is there now",
    )


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Let one process at a time save into a folder."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def _replace(path: Path, text: str) -> None:
    """Replace a file atomically, with the same permissions and, where that is allowed, the same owner."""
    before = path.stat()
    with NamedTemporaryFile("wb", dir=path.parent, prefix=f".{path.name}.", suffix=".tmp", delete=False) as file:
        try:
            file.write(text.encode())
            file.flush()
            os.fsync(file.fileno())
            shutil.copymode(path, file.name)
            with suppress(PermissionError):
                os.chown(file.name, before.st_uid, before.st_gid)
            os.replace(file.name, path)
        except BaseException:
            os.unlink(file.name)
            raise
