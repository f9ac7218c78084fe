"""Writing a new source's YAML, with values read from its server."""

from __future__ import annotations

import random
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from binlake.config import PipelineConfig, SourceConfig, config_of, yaml_file
from binlake.errors import ConfigurationError, SourceError, UsageError
from binlake.names import pattern_of
from binlake.source.endpoint import Endpoint
from binlake.source.listed_tables import MIRRORED, list_tables, user_databases
from binlake.source.server import Source, replicas

_YAML = """\
# All that can be set: binlake help yaml, binlake help settings
source:
  name: {name}
  connection: {connection}
  server_id: {server_id}  # the first of {server_ids} replica ids that no other replica may have
tables:
  include: {include}  # database.table, shell-style patterns
{tables}lake:
  path: {lake}
schedule: {schedule}
{sections}"""
_IDS = range(10_000, 4_000_000_000)
"""The ids to choose from; people give servers smaller ones."""


@dataclass(frozen=True)
class SourceAsked:
    """The answers from which a new source's YAML is made.

    include: patterns of tables; without any all that the account sees. lake: a folder or a store's URL. schedule: cron.
    connection: the id of its Airflow connection; by default made of the name. server_id: None for free ones. settings:
    others, by their keys with dots, such as verify.repair.
    """

    name: str
    include: tuple[str, ...]
    lake: str
    schedule: str
    connection: str | None = None
    server_id: int | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Draft:
    """A new source's YAML that isn't written yet, and the configuration that it means."""

    path: Path
    text: str
    config: PipelineConfig

    def write(self) -> None:
        """Write the file. Raises UsageError if one is there, or the folder can't be written."""
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with self.path.open("x", encoding="utf-8") as file:
                file.write(self.text)
        except OSError as error:
            if self.path.exists():
                raise UsageError(f"{self.path} is there already", remedy=_OTHER_FILE) from error
            raise UsageError(
                f"can't write {self.path}: {error.strerror}",
                remedy="let this account write the folder, or choose another",
            ) from error


@dataclass(frozen=True)
class Offer:
    """Tables that can be picked for a mirror: one, or a whole database with those that it will have.

    rows, bytes: the server's estimates. tables: their number.
    """

    pattern: str
    rows: int
    bytes: int
    tables: int


_OTHER_FILE = "choose another file, or edit that one"


def offers(source: Source) -> list[Offer]:
    """Return what the account can mirror: each database that has tables, and below it its tables."""
    of_databases: dict[str, list[Offer]] = {}
    for listed in list_tables(source):
        if listed.kind in MIRRORED:
            name = listed.name
            offer = Offer(pattern_of(name.database, name.table), listed.rows, listed.size, 1)
            of_databases.setdefault(name.database, []).append(offer)
    picked: list[Offer] = []
    for database, tables in of_databases.items():
        whole = Offer(
            _whole(database),
            sum(table.rows for table in tables),
            sum(table.bytes for table in tables),
            len(tables),
        )
        picked += [whole, *tables]
    return picked


def _whole(database: str) -> str:
    """Return the pattern of all tables that a database will have."""
    return pattern_of(database, "") + "*"


def draft(path: Path, endpoint: Endpoint, asked: SourceAsked) -> Draft:
    """Return the source's file, with free replica ids.

    Raises UsageError if the file exists or there is nothing to mirror; ConfigurationError if it would be refused;
    SourceError.
    """
    if path.exists():
        raise UsageError(f"{path} is there already", remedy=_OTHER_FILE)
    _configuration_in(path, _text(asked, asked.include or ["shop.*"], first_id=1))  # before the server is asked
    with Source.open(endpoint) as source:
        patterns = asked.include or [_whole(database) for database in user_databases(source)]
        if not patterns:
            raise UsageError(
                "the account sees no database", remedy="grant it SELECT on those to mirror, or give --tables"
            )
        first = asked.server_id or _free_ids(source)
    text = _text(asked, patterns, first)
    config = _configuration_in(path, text)
    if (config.source.name, config.source.connection) != (asked.name, asked.connection or connection_of(asked.name)):
        raise UsageError(f"{asked.name!r} is no name of a source", remedy="write letters, digits, _ and - alone")
    return Draft(path, text, config)


def _text(asked: SourceAsked, patterns: Collection[str], first_id: int) -> str:
    sections = nested(asked.settings)
    tables = _yaml(sections.pop("tables", {}))
    return _YAML.format(
        tables="".join(f"  {line}\n" for line in tables.splitlines()),
        sections=_yaml(sections),
        name=asked.name,
        connection=asked.connection or connection_of(asked.name),
        server_id=first_id,
        server_ids=_SERVER_IDS,
        include="[" + ", ".join(_quoted(pattern) for pattern in patterns) + "]",
        lake=_quoted(asked.lake),
        schedule=_quoted(asked.schedule),
    )


def nested(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings by keys with dots as sections of a YAML."""
    sections: dict[str, Any] = {}
    for key, value in settings.items():
        *above, last = key.split(".")
        section = sections
        for name in above:
            section = section.setdefault(name, {})
        section[last] = value
    return sections


def _yaml(sections: Mapping[str, Any]) -> str:
    """Return sections as YAML, each of a line; nothing where there is none."""
    if not sections:
        return ""
    return yaml.safe_dump(dict(sections), default_flow_style=None, sort_keys=False, allow_unicode=True, width=10**6)


def connection_of(name: str) -> str:
    """Return the id of the Airflow connection that a source of this name has by default."""
    return f"{name.replace('-', '_')}_mysql"


def _configuration_in(path: Path, text: str) -> PipelineConfig:
    """Return the configuration that the file will mean. Raises ConfigurationError if it would be refused."""
    try:
        return config_of(yaml_file.parsed(text.encode(), path))
    except ConfigurationError as error:
        _, _, lines = error.message.partition("\n")
        raise ConfigurationError(
            f"nothing was written to {path}, for it would be refused:\n{lines or error.message}",
            remedy="fix --tables, --name, --lake or --schedule",
            problems=error.problems,
        ) from None


_SERVER_IDS = SourceConfig.model_fields["server_ids"].default


def _free_ids(source: Source) -> int:
    """Return the first of a range of replica ids that no replica has, chosen at random as other readers come and go."""
    taken = {source.server_id}
    with suppress(SourceError):  # the doctor asks for the grant
        taken |= {replica.server_id for replica in replicas(source)}
    while True:
        first = random.choice(_IDS)
        if not taken & set(range(first, first + _SERVER_IDS)):
            return first


def _quoted(text: str) -> str:
    """Return a YAML string in single quotes, in which only single quotes are escaped, by doubling."""
    return "'" + text.replace("'", "''") + "'"
