"""docker/monitoring: the dashboard and the alert rules name metrics, labels and their values that exist."""

from __future__ import annotations

import json
import re
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml

from binlake.cli import command_line
from binlake.lease.followers import FollowerStatus
from binlake.records.metrics import FAMILIES, samples_of, to_text
from measured_source import COUNTS, KNOWN, STATUS, before
from prometheus_text import parse

ROOT = Path(__file__).resolve().parents[2]
MONITORING = ROOT / "docker" / "monitoring"
DASHBOARD: dict[str, Any] = json.loads((MONITORING / "binlake-dashboard.json").read_text())
ALERTS: dict[str, Any] = yaml.safe_load((MONITORING / "binlake-alerts.yml").read_text())
PANELS: list[dict[str, Any]] = DASHBOARD["panels"]
RULES: list[dict[str, Any]] = [rule for group in ALERTS["groups"] for rule in group["rules"]]
EXPRESSIONS = [target["expr"] for panel in PANELS for target in panel["targets"]] + [rule["expr"] for rule in RULES]
FOLLOWER = FollowerStatus("host", before(hours=3), before(seconds=1), 1.0, 7, 2.5, "", is_silent=False)
MEASURED = replace(KNOWN, status=replace(STATUS, follower=FOLLOWER))
FOUND = parse(to_text(samples_of(MEASURED, COUNTS, by_table=True)))
"""All families, each with all its labels."""


def labels_of(metric: str) -> dict[str, set[str]]:
    """The labels of a metric, with the values that they have."""
    known: dict[str, set[str]] = {}
    for labels in FOUND[metric].values:
        for label, value in labels:
            known.setdefault(label, set()).add(value)
    return known


def test_each_family_is_measured_here() -> None:
    assert FOUND.keys() == {family.name for family in FAMILIES}


def test_each_metric_that_is_asked_for_exists() -> None:
    asked = {metric for expression in EXPRESSIONS for metric in re.findall(r"\bbinlake_\w+", expression)}
    assert asked - FOUND.keys() == set()
    of_sources = {family.name for family in FAMILIES if not family.stat.startswith("table_")}
    left = {"binlake_lag_bytes", "binlake_carried_timestamp_seconds", "binlake_run_ended_timestamp_seconds"}
    assert of_sources - asked == left, "these alone are neither shown nor watched"


def test_each_label_that_is_asked_for_exists_with_its_value() -> None:
    for expression in EXPRESSIONS:
        for metric, selectors in re.findall(r"\b(binlake_\w+)\{([^}]*)\}", expression):
            for label, how, value in re.findall(r'(\w+)(=~|=)"([^"]*)"', selectors):
                wanted = set() if value == "$source" else set(value.split("|") if how == "=~" else [value])
                assert wanted <= labels_of(metric)[label], expression
        named = {label for names in re.findall(r"(?:by|on) \(([\w, ]+)\)", expression) for label in names.split(", ")}
        (shared,) = {frozenset(labels_of(metric)) & named for metric in re.findall(r"\bbinlake_\w+", expression)}
        assert shared == named, expression


def test_counters_alone_are_summed_over_time() -> None:
    for expression in EXPRESSIONS:
        for metric in re.findall(r"\bbinlake_\w+", expression):
            summed = re.search(rf"(rate|increase)\({metric}\b", expression) is not None
            assert summed == (FOUND[metric].kind == "counter"), expression


def test_each_text_names_labels_that_its_metrics_have() -> None:
    for expression, text in [
        *((target["expr"], target["legendFormat"]) for panel in PANELS for target in panel["targets"]),
        *((rule["expr"], text) for rule in RULES for text in rule["annotations"].values()),
    ]:
        named = set(re.findall(r"\{\{(?: \$labels\.)?(\w+) ?\}\}", text))
        grouped = re.match(r"(?:\d \* )?\w+ by \((\w+)\)", expression)
        known = {grouped[1]} if grouped else set(labels_of(re.findall(r"\bbinlake_\w+", expression)[0]))
        assert named <= known, expression


def test_an_alert_says_what_is_wrong_and_what_to_do() -> None:
    assert max(Counter(rule["alert"] for rule in RULES).values()) == 1
    for rule in RULES:
        assert rule.keys() - {"for"} == {"alert", "expr", "labels", "annotations"}
        assert rule["labels"]["severity"] in ("critical", "warning")
        assert "$labels.source" in rule["annotations"]["summary"]
        for command in re.findall(r"binlake ([a-z]+) (?:--config FILE|PATH)", rule["annotations"]["description"]):
            assert command in command_line._parser().format_help(), rule["alert"]


def test_the_panels_of_the_dashboard_fill_their_places() -> None:
    assert [panel["id"] for panel in PANELS] == list(range(1, len(PANELS) + 1))
    taken: set[tuple[int, int]] = set()
    for panel in PANELS:
        place = panel["gridPos"]
        cells = {(place["x"] + x, place["y"] + y) for x in range(place["w"]) for y in range(place["h"])}
        assert not cells & taken, panel["title"]
        assert place["x"] + place["w"] <= 24, panel["title"]
        taken |= cells
    assert len(taken) == 24 * max(y + 1 for _, y in taken), "no hole is left"
    variables = {variable["name"] for variable in DASHBOARD["templating"]["list"]}
    used = set(re.findall(r"\$\{?(\w+)", json.dumps([PANELS, DASHBOARD["templating"]]))) - {"__all"}
    assert used == variables
    assert all(panel["datasource"]["uid"] == "${datasource}" for panel in PANELS)


def test_the_page_lists_each_metric() -> None:
    page = (ROOT / "jobs" / "METRICS.md").read_text()
    rows = re.findall(r"^\| `(binlake_\w+)` \| ([\w, ]*) \| .+ \|$", page, re.MULTILINE)
    listed = {name: {label for label in labels.split(", ") if label} for name, labels in rows}
    assert len(listed) == len(rows)
    assert listed == {name: set(labels_of(name)) - {"source"} for name in FOUND}
