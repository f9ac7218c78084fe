"""The folder of YAML files: one source each, or feeds over several. The DAG factory and the page read the same."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from pathlib import Path

from airflow.configuration import conf

from binlake.config import PipelineConfig, load
from binlake.errors import ConfigurationError

_loaded: dict[Path, tuple[tuple[int, int], PipelineConfig | ConfigurationError]] = {}
"""By file, with its time and size: the page asks every few seconds."""
_lock = threading.Lock()
_SECTION = re.compile(r"^(\w+):", re.MULTILINE)


def pipelines_folder(beside: Path | None = None) -> Path:
    """Airflow's setting ``[binlake] pipelines`` (``AIRFLOW__BINLAKE__PIPELINES``); else ``pipelines`` beside the file
    of the DAGs, where that is known, or in Airflow's DAGs folder."""
    if told := conf.get("binlake", "pipelines", fallback=""):
        return Path(told).expanduser()
    return (beside or Path(conf.get("core", "dags_folder"))) / "pipelines"


def sources_of(folder: Path) -> Iterator[tuple[Path, PipelineConfig | ConfigurationError]]:
    """Each file with its settings, or with what is wrong with it; of two with one source's name the later is wrong."""
    files: dict[str, Path] = {}
    for file in sorted(folder.glob("*.yaml")):
        if _holds_feeds(file):
            continue
        config = _load(file)
        if isinstance(config, PipelineConfig):
            name = config.source.name
            if twin := files.get(name):
                config = ConfigurationError(
                    f"{file}:\n  source.name: {name!r} is the source of {twin.name}",
                    remedy="give each source a name of its own",
                )
            else:
                files[name] = file
        yield file, config


def files_of_feeds(folder: Path) -> list[Path]:
    """Those over several sources, which are no source's."""
    return [file for file in sorted(folder.glob("*.yaml")) if _holds_feeds(file)]


def _holds_feeds(file: Path) -> bool:
    """By its first words, as this is asked every few seconds: a source's YAML has its section ``source``."""
    try:
        text = file.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False  # whoever loads it says so
    sections = set(_SECTION.findall(text))
    return "feeds" in sections and "source" not in sections


def _load(file: Path) -> PipelineConfig | ConfigurationError:
    try:
        stat = file.stat()
        stamp = (stat.st_mtime_ns, stat.st_size)
        with _lock:
            if file in _loaded and _loaded[file][0] == stamp:
                return _loaded[file][1]
        config: PipelineConfig | ConfigurationError = load(file)
    except OSError as error:
        return ConfigurationError(f"can't read {file}: {error.strerror}", remedy="let Airflow's account read it")
    except ConfigurationError as error:
        config = error
    with _lock:
        _loaded[file] = (stamp, config)
    return config
