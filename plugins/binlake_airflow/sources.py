"""The folder of YAML files, read by the DAG factory and the page: one source each, or feeds over several."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from pathlib import Path

from airflow.configuration import conf

from binlake.config import PipelineConfig, load
from binlake.config.pipeline_config import FileStand, file_stand, files_stand
from binlake.errors import ConfigurationError

_loaded: dict[Path, tuple[dict[Path, FileStand | None], PipelineConfig | ConfigurationError]] = {}
"""Configurations by file, with marks of the files that were read, as the page asks every few seconds."""
_lock = threading.Lock()
_SECTION = re.compile(r"""^['"]?(\w+)['"]?[ \t]*:""", re.MULTILINE)


def pipelines_folder(beside: Path | None = None) -> Path:
    """Return Airflow's setting ``[binlake] pipelines`` (``AIRFLOW__BINLAKE__PIPELINES``); by default ``pipelines``
    beside the DAGs' file, if known, else in Airflow's DAGs folder."""
    if setting := conf.get("binlake", "pipelines", fallback=""):
        return Path(setting).expanduser()
    return (beside or Path(conf.get("core", "dags_folder"))) / "pipelines"


def sources_of(folder: Path) -> Iterator[tuple[Path, PipelineConfig | ConfigurationError]]:
    """Yield each source's file with its configuration or error; of two files with one source name that is an error
    which was written last: the other one keeps working."""
    loaded = {file: _load(file) for file in sorted(folder.glob("*.yaml")) if not _holds_no_source(file)}
    owners: dict[str, Path] = {}
    for file in sorted(loaded, key=_written):
        config = loaded[file]
        if isinstance(config, PipelineConfig):
            owners.setdefault(config.source.name, file)
    for file, config in loaded.items():
        if isinstance(config, PipelineConfig) and (owner := owners[config.source.name]) != file:
            yield (
                file,
                ConfigurationError(
                    f"{file}:\n  source.name: {config.source.name!r} is the source of {owner.name}, which is older",
                    remedy="give each source a name of its own",
                ),
            )
        else:
            yield file, config


def _written(file: Path) -> tuple[float, str]:
    """Return when a file was written, and its name; one that is gone comes last."""
    try:
        return file.stat().st_mtime, file.name
    except OSError:
        return float("inf"), file.name


def files_of_feeds(folder: Path) -> list[Path]:
    """Return the files of feeds over several sources."""
    return [file for file in sorted(folder.glob("*.yaml")) if "feeds" in _sections_without_source(file)]


def _holds_no_source(file: Path) -> bool:
    """Return whether a file has feeds, or tables of several sources."""
    return bool({"feeds", "sources"} & _sections_without_source(file))


def _sections_without_source(file: Path) -> set[str]:
    """Return the top-level keys of a file that has no source, else nothing. Nothing else of it is understood, as this
    is asked every few seconds."""
    try:
        sections = sections_in(file.read_text(encoding="utf-8-sig", errors="replace"))
    except OSError:
        return set()  # loading it reports the error
    return set() if "source" in sections else sections


def sections_in(text: str) -> set[str]:
    """Return the top-level keys of a YAML, also of one that can't be read."""
    return set(_SECTION.findall(text))


def _load(file: Path) -> PipelineConfig | ConfigurationError:
    try:
        file.stat()
        with _lock:
            known = _loaded.get(file)
        if known and all(file_stand(each) == stand for each, stand in known[0].items()):
            return known[1]
        seen = files_stand(file)
        config: PipelineConfig | ConfigurationError = load(file)
    except OSError as error:
        return ConfigurationError(f"can't read {file}: {error.strerror}", remedy="let Airflow's account read it")
    except ConfigurationError as error:
        config = error
    with _lock:
        _loaded[file] = (seen, config)
    return config
