"""Writing a new source's YAML, with values read from its server."""

from __future__ import annotations

import random
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path

from binlake.config import PipelineConfig, SourceConfig, config_of, yaml_file
from binlake.errors import ConfigurationError, SourceError, UsageError
from binlake.source.catalog import user_databases
from binlake.source.connection import Endpoint
from binlake.source.replicas import replicas
from binlake.source.server import Source

_YAML = """\
# All that can be set: binlake help yaml
source:
  name: {name}
  connection: {connection}
  server_id: {server_id}  # the first of {server_ids} replica ids that no other replica may have
tables:
  include: {include}  # database.table, shell-style patterns
lake:
  path: {lake}
schedule: "{schedule}"
"""
_IDS = range(10_000, 4_000_000_000)
"""The ids to choose from; people give servers smaller ones."""


def write_yaml(
    path: Path, endpoint: Endpoint, *, name: str, include: Collection[str], lake: str, schedule: str
) -> PipelineConfig:
    """Write the source's file, with free replica ids, and return the configuration that it means.

    Raises UsageError if the file exists, would be refused, or there is nothing to mirror; SourceError.
    """
    if path.exists():
        raise UsageError(f"{path} is there already", remedy="choose another file, or edit that one")
    _configuration_in(
        path, _text(name, include or ["shop.*"], lake, schedule, first_id=1)
    )  # before the server is asked
    with Source.open(endpoint) as source:
        patterns = list(include) or [f"{database}.*" for database in user_databases(source)]
        if not patterns:
            raise UsageError(
                "the account sees no database", remedy="grant it SELECT on those to mirror, or give --tables"
            )
        first = _free_ids(source)
    written = _text(name, patterns, lake, schedule, first)
    config = _configuration_in(path, written)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(written, encoding="utf-8")
    return config


def _text(name: str, patterns: Collection[str], lake: str, schedule: str, first_id: int) -> str:
    return _YAML.format(
        name=name,
        connection=f"{name.replace('-', '_')}_mysql",
        server_id=first_id,
        server_ids=_SERVER_IDS,
        include="[" + ", ".join(_quoted(pattern) for pattern in patterns) + "]",
        lake=_quoted(lake),
        schedule=schedule,
    )


def _configuration_in(path: Path, text: str) -> PipelineConfig:
    """Return the configuration that the file will mean. Raises UsageError if it would be refused."""
    try:
        return config_of(yaml_file.parsed(text.encode(), path))
    except ConfigurationError as error:
        _, _, lines = error.message.partition("\n")
        raise UsageError(
            f"nothing was written to {path}, for it would be refused:\n{lines or error.message}",
            remedy="mend --tables, --name, --lake or --schedule",
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
