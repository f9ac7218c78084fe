"""Metrics of the sources that a user may read, for Prometheus, with what Airflow alone knows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from binlake.config import PipelineConfig
from binlake.records import runs
from binlake.records.evidence import AirflowState, evidence_of
from binlake.records.metrics import MetricSample, counted_since, samples_of, to_text, unreadable
from binlake.records.status import read_status
from binlake.store.metadata import now_us
from binlake_airflow.page import answers, tables
from binlake_airflow.page.access import Reader
from binlake_airflow.page.airflow_state import airflow_states
from binlake_airflow.sources import pipelines_folder, sources_of


def text(reader: Reader, *, by_table: bool) -> str:
    """Return the metrics of all sources that a user may read; of one whose metadata can't be read, that alone."""
    configs = [config for _, config in sources_of(pipelines_folder()) if isinstance(config, PipelineConfig)]
    good = {config.source.name: config for config in configs}
    readable = sorted(reader.readable(good))
    airflow = airflow_states(readable, reader.may_read_logs)
    return to_text(sample for name in readable for sample in _of_source(good[name], airflow[name], by_table=by_table))


def _of_source(config: PipelineConfig, airflow: AirflowState, *, by_table: bool) -> Iterator[MetricSample]:
    try:
        samples = _known(config, airflow, by_table=by_table)
    except Exception as error:  # an error of one source must not hide the others
        answers.problem(error)
        samples = [unreadable(config.source.name)]
    yield from samples


def _known(config: PipelineConfig, airflow: AirflowState, *, by_table: bool) -> list[MetricSample]:
    metadata, now = answers.metadata_of(config), now_us()
    known = evidence_of(config, metadata, read_status(config, metadata), now, airflow)
    counts = runs.changes_since(metadata, counted_since(now))
    return list(samples_of(replace(known, unreadable=tables.unreadable(config)), counts, by_table=by_table))
