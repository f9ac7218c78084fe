"""Airflow's app and the folder of its sources."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture(scope="module")
def server() -> Iterator[Any]:
    """Airflow's whole app, with plugins, middlewares and a database."""
    from airflow_page import airflow_server

    with airflow_server() as app:
        yield app


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Of the sources' YAML files."""
    made = tmp_path / "pipelines"
    made.mkdir()
    monkeypatch.setenv("AIRFLOW__BINLAKE__PIPELINES", str(made))
    return made
