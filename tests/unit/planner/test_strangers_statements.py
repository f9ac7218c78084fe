"""A sample of statements as strangers write them; tests/soak/strangers_statements.py follows 100,000."""

from __future__ import annotations

import time

import pytest

from binlake.position import Flavour
from strangers_statements import StrangersStatements, followed

SECONDS = 15.0
"""CPU time that any statement may take, on a machine that is busy."""


@pytest.mark.parametrize("flavour", ["mysql", "mariadb"])
def test_any_statement_is_followed_or_stops_its_tables(flavour: Flavour) -> None:
    strangers = StrangersStatements(51)
    for _ in range(150):
        text = strangers.statement()
        began = time.process_time()
        steps = followed(text, flavour)
        assert time.process_time() - began < SECONDS, text[:300]
        unexpected = [table.life.reason for table in steps.tables if "Error at " in table.life.reason]
        assert not unexpected, text[:300]
