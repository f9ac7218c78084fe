"""A strict reader of Prometheus' text form, version 0.0.4, written from its description and not from our writer.

It refuses what Prometheus or its linter refuses: a family in two places, a metric twice, HELP or TYPE behind metrics,
wrong names and escapes, a counter without ``_total``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

_NAME = r"[a-zA-Z_:][a-zA-Z0-9_:]*"
_METRIC = re.compile(rf"({_NAME})(?:\{{(.*)\}})? (\S+)")
_LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\[\\"n])*)"')
_VALUE = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?|[+-]Inf|NaN")
_ESCAPES = {"\\\\": "\\", '\\"': '"', "\\n": "\n"}
Labels = frozenset[tuple[str, str]]


@dataclass
class Parsed:
    """A family as it was read."""

    kind: str
    about: str
    values: dict[Labels, float] = field(default_factory=dict)

    def value(self, **labels: str) -> float:
        """The value of the one metric that has these labels among others."""
        (found,) = [value for known, value in self.values.items() if labels.items() <= set(known)]
        return found


def parse(text: str) -> dict[str, Parsed]:
    """The families of a text, by name."""
    assert not text or text.endswith("\n"), "the last line must end"
    families: dict[str, Parsed] = {}
    about: dict[str, str] = {}
    current = ""
    for line in text.split("\n")[:-1]:
        if match := re.fullmatch(rf"# HELP ({_NAME}) (.+)", line):
            assert match[1] not in about, f"a second HELP: {line}"
            about[match[1]] = match[2]
        elif match := re.fullmatch(rf"# TYPE ({_NAME}) (counter|gauge)", line):
            current, kind = match[1], match[2]
            assert current not in families, f"a second TYPE: {line}"
            assert (kind == "counter") == current.endswith("_total"), f"a counter ends in _total: {line}"
            families[current] = Parsed(kind, about[current])
        else:
            match = _METRIC.fullmatch(line)
            assert match, f"this is no metric: {line!r}"
            assert match[1] == current, f"behind its family: {line}"
            labels = _labels(match[2] or "")
            assert labels not in families[current].values, f"twice: {line}"
            assert _VALUE.fullmatch(match[3]), f"this is no number: {line}"
            families[current].values[labels] = float(match[3])
    assert about.keys() == families.keys()
    assert all(family.values for family in families.values())
    return families


def _labels(text: str) -> Labels:
    labels: dict[str, str] = {}
    at = 0
    while at < len(text):
        match = _LABEL.match(text, at)
        assert match, f"these are no labels: {text!r} from {at} on"
        assert match[1] not in labels, f"a label twice: {text!r}"
        assert not match[1].startswith("__"), f"these names are Prometheus' own: {text!r}"
        labels[match[1]] = re.sub(r'\\[\\"n]', lambda escape: _ESCAPES[escape[0]], match[2])
        at = match.end()
        if at < len(text):
            assert text[at] == ",", f"these are no labels: {text!r} from {at} on"
            at += 1
            assert at < len(text), f"nothing follows the comma: {text!r}"
    return frozenset(labels.items())
