"""A file of tables that several sources fill. The YAML of each source names it in ``merge_tables``, as ``file``."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import AfterValidator, Field, model_validator

from binlake.config import yaml_file
from binlake.config.section import Section
from binlake.config.shards import MergedTable, SourceName, is_plain_column, refuse_same_places, refuse_same_tables
from binlake.errors import ConfigurationError

_KEY = "merge_tables"


class MergedOfSources(MergedTable):
    """A merged table as the file has it, which says of all of them where they are, and which sources fill them."""

    source_name_column: Annotated[str, AfterValidator(is_plain_column)]

    @model_validator(mode="after")
    def _is_of_one_source_or_of_several(self) -> Self:
        if self.sources or self.folder is not None:
            raise ValueError("sources and folder are keys of the file, above merge_tables")
        return self


class SourcesFile(Section):
    """Tables that several sources fill.

    folder: in the lake, beside the folders of the sources. sources: their names, as their YAMLs have them.
    """

    folder: SourceName
    sources: Annotated[list[SourceName], Field(min_length=1)]
    merge_tables: Annotated[list[MergedOfSources], Field(min_length=1)]

    @model_validator(mode="after")
    def _has_a_place(self) -> Self:
        refuse_same_places(self.sources, self.folder)
        refuse_same_tables(self.merge_tables)
        return self

    @property
    def entries(self) -> list[dict[str, Any]]:
        """Return the entries of ``merge_tables`` as the YAML of a source could have them itself."""
        said = {"sources": self.sources, "folder": self.folder}
        return [{**entry.model_dump(by_alias=True, exclude_none=True), **said} for entry in self.merge_tables]


def read(path: Path) -> SourcesFile:
    """Read a file. Raises ConfigurationError."""
    if not path.is_file():
        raise ConfigurationError(f"there is no file {path}", remedy="correct file in merge_tables")
    return yaml_file.read(path).model(SourcesFile)


def is_sources_file(document: Mapping[str, Any]) -> bool:
    """Return whether a YAML has ``sources`` and is no source's."""
    return "sources" in document and not {"source", "feeds"} & document.keys()


def put_in_place(document: dict[str, Any], path: Path) -> None:
    """Put the entries of the files that a source's ``merge_tables`` names in their places. path: of its YAML, beside
    which they are. Raises ConfigurationError."""
    listed = document.get(_KEY)
    if not isinstance(listed, list):
        return  # the model says what is wrong
    entries: list[Any] = []
    for number, entry in enumerate(listed):
        if not (isinstance(entry, dict) and "file" in entry):
            entries.append(entry)
        elif len(entry) > 1 or not isinstance(entry["file"], str):
            raise ConfigurationError(
                f"{path}:\n  {_KEY}.{number}: an entry with file has nothing else, as the file says it",
                remedy=f"write {_KEY}: [{{file: company.yaml}}]",
            )
        else:
            entries += read(_beside(path, entry["file"])).entries
    document[_KEY] = entries


def files_of(path: str | Path) -> list[Path]:
    """Return a source's YAML, and the files that it names; the YAML alone where it can't be read."""
    try:
        listed = yaml_file.read(path).document.get(_KEY)
    except ConfigurationError:
        return [Path(path)]
    entries = listed if isinstance(listed, list) else []
    named = [entry["file"] for entry in entries if isinstance(entry, dict) and isinstance(entry.get("file"), str)]
    return [Path(path), *(_beside(Path(path), name) for name in named)]


def _beside(path: Path, name: str) -> Path:
    return path.resolve().parent / Path(name).expanduser()
