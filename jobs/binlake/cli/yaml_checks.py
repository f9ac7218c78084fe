"""``binlake check``: the YAML files of sources and feeds, as Airflow would read them, without a server."""

from __future__ import annotations

import argparse
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from binlake.config import PipelineConfig, config_of, sources_file, yaml_file
from binlake.errors import CheckFailed, ConfigurationError, UsageError
from binlake.report import counted, harmless_entry


@dataclass(frozen=True)
class CheckedFile:
    """A YAML, and what is in it, or what is wrong with it, in one line."""

    path: Path
    found: str
    is_good: bool

    @property
    def line(self) -> str:
        """Return the line that says it."""
        return f"{'ok  ' if self.is_good else 'FAIL'}  {self.path}: {self.found}"


def check(arguments: argparse.Namespace) -> None:
    """Check files and folders of YAMLs, and print a line of each file. Raises UsageError where there is none, and
    CheckFailed if one has errors."""
    checked = checks(files_at(arguments.paths))
    for file in checked:
        print(harmless_entry(file.line))
    failed = sum(not file.is_good for file in checked)
    if failed:
        what = f"{failed:,} of {counted(len(checked), 'file')}"
        raise CheckFailed(
            f"{what} can't be used", remedy="fix the lines marked FAIL; binlake help yaml and settings list the keys"
        )


def files_at(paths: Iterable[Path]) -> list[Path]:
    """Return the named files, and those of folders that Airflow would read, each once. Raises UsageError for a path
    that isn't there, and a folder without any."""
    found: dict[Path, Path] = {}
    for path in paths:
        files = sorted(path.glob("*.yaml")) if path.is_dir() else [path] if path.exists() else []
        if not files:
            why = "has no file *.yaml" if path.is_dir() else "isn't there"
            raise UsageError(f"{path} {why}", remedy="name YAML files, or the folder that Airflow reads them from")
        for file in files:
            found.setdefault(file.resolve(), file)
    return list(found.values())


def checks(files: Sequence[Path]) -> list[CheckedFile]:
    """Return what is in each file. Those that give a source the same name are all refused: Airflow would take the
    oldest, and files of a checkout have lost their times."""
    results: dict[Path, PipelineConfig | str | ConfigurationError] = {file: _read(file) for file in files}
    owners: defaultdict[str, list[Path]] = defaultdict(list)
    for file, result in results.items():
        if isinstance(result, PipelineConfig):
            owners[result.source.name].append(file)
    return [_checked(file, result, owners) for file, result in results.items()]


def _read(file: Path) -> PipelineConfig | str | ConfigurationError:
    """Return a source's configuration, what a file of feeds or of several sources holds, or the error."""
    from binlake.feeds.feeds_file import is_file_of_feeds, understand, understood

    try:
        if is_file_of_feeds(file):
            return counted(len({feed.name for _, feed in understood(file)}), "feed")
        read = yaml_file.read(file)
        if sources_file.is_sources_file(read.document):
            tables = read.model(sources_file.SourcesFile)
            return f"{counted(len(tables.merge_tables), 'table')} of {counted(len(tables.sources), 'source')}"
        config = config_of(read)
        understand(file, config.feeds)
    except ConfigurationError as error:
        return error
    return config


def _checked(
    file: Path, result: PipelineConfig | str | ConfigurationError, owners: dict[str, list[Path]]
) -> CheckedFile:
    if isinstance(result, ConfigurationError):
        return CheckedFile(file, _in_one_line(file, result.message), is_good=False)
    if isinstance(result, str):
        return CheckedFile(file, result, is_good=True)
    name = result.source.name
    if others := ", ".join(str(other) for other in owners[name] if other != file):
        return CheckedFile(file, f"source.name: {name!r} is the source of {others}, too", is_good=False)
    return CheckedFile(file, f"source {name}", is_good=True)


def _in_one_line(file: Path, message: str) -> str:
    """Return a message without the file's name in front, which the line has."""
    first, *more = (line.strip() for line in message.removeprefix(str(file)).lstrip(":, ").splitlines() if line.strip())
    return "; ".join([first, *more])
