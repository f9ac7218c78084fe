"""What binlake init writes and says."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from binlake import names
from binlake.cli import environment, new_source
from binlake.cli.new_source import SourceAsked
from binlake.errors import ConfigurationError
from binlake.source.endpoint import Endpoint
from binlake.source.server import Source

DATABASES = ["shop", "my.db", "odd[1]*", "it's"]


class Server:
    """A server with some databases, and no replica."""

    server_id = 1

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *_: object) -> None:
        pass


def test_all_databases_are_included_whatever_their_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Source, "open", lambda endpoint: Server())
    monkeypatch.setattr(new_source, "user_databases", lambda source: DATABASES)
    monkeypatch.setattr(new_source, "replicas", lambda source: [])
    asked = SourceAsked("shop", (), "./lake", "0 * * * *")
    made = new_source.draft(tmp_path / "shop.yaml", Endpoint("127.0.0.1", 3306, "u", "p"), asked)
    include = made.config.tables.include
    for database in DATABASES:
        assert [names.matches(pattern, database, "t") for pattern in include].count(True) == 1


def test_settings_become_sections_and_what_is_wrong_is_said_by_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Source, "open", lambda endpoint: Server())
    monkeypatch.setattr(new_source, "replicas", lambda source: [])
    odd = "shop.o'd: [#*"
    settings = {
        "tables.exclude": ["shop.tmp_*", odd],
        "tables.exclude_columns": ["shop.*.password"],
        "follow.every": "2s",
        "verify.schedule": None,
        "verify.repair": "auto",
        "airflow.lag_minutes": 30,
        "policies.on_drop_column": "keep",
        "invalid_dates": "keep_text",
    }
    path, endpoint = tmp_path / "shop.yaml", Endpoint("127.0.0.1", 3306, "u", "p")
    asked = SourceAsked("shop", ("shop.*",), "./lake", "0 * * * *", settings=settings)
    made = new_source.draft(path, endpoint, asked).config
    assert (made.tables.exclude, made.tables.exclude_columns) == (["shop.tmp_*", odd], ["shop.*.password"])
    assert made.follow is not None
    assert (made.follow.every, made.verify.schedule, made.verify.repair) == ("2s", None, "auto")
    assert (made.airflow.lag_minutes, made.policies.on_drop_column, made.invalid_dates) == (30, "keep", "keep_text")
    wrong = replace(asked, schedule="hourly", settings={**settings, "tables.exclude": ["a", "b.c"]})
    with pytest.raises(ConfigurationError) as refused:
        new_source.draft(path, endpoint, wrong)
    assert [problem.key for problem in refused.value.problems] == ["tables.exclude.0", "schedule"]


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ("mysql://u:secret@db:3307/", "mysql://u:PASSWORD@db:3307/"),
        ("mysql://u@db", "mysql://u:PASSWORD@db/"),
        ("mysql://a%40b:c%2Fd@[::1]:3306/?ssl_ca=/ca.pem", "mysql://a%40b:PASSWORD@[::1]:3306/?ssl_ca=/ca.pem"),
    ],
)
def test_the_connection_is_shown_as_it_was_given_without_its_password(given: str, shown: str) -> None:
    assert environment.without_password(given) == shown
