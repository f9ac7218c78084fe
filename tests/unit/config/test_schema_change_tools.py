"""Names by which schema change tools call their tables, and what they withhold."""

from __future__ import annotations

import pytest

from binlake.config import TablesConfig
from binlake.config.schema_change_tools import changed_table, copied_table, hides_original

VITESS = "_vt_vrp_6ace8bcef73211ea87e9f875a4d24e90_20200915120410_"


@pytest.mark.parametrize(
    ("table", "copied", "changed"),
    [
        ("_t_gho", "t", "t"),
        ("__t_new", "t", "t"),
        ("lhmn_t", "t", "t"),
        ("_t_ghc", None, "t"),
        ("_t_del", None, "t"),
        ("_t_20240101120000_del", None, "t"),
        ("_t_old", None, "t"),
        ("_t_old_20240101_120000", None, "t"),
        ("_t_chkpnt", None, "t"),
        ("lhma_2026_09_28_12_00_00_123_t", None, "t"),
        ("t_new", None, None),
        ("lhma_t", None, None),
        (VITESS, None, None),
    ],
)
def test_a_name_may_be_that_of_a_tools_table(table: str, copied: str | None, changed: str | None) -> None:
    assert (copied_table(table), changed_table(table)) == (copied, changed)


def test_vitess_does_not_tell_the_table() -> None:
    assert hides_original(VITESS)
    assert hides_original("_4e5dcf80_354b_11eb_82cd_f875a4d24e90_20201203114013_vrepl")
    assert not hides_original("_t_gho")


def test_columns_are_withheld_of_copies_too() -> None:
    tables = TablesConfig(include=["shop.*"], exclude_columns=["shop.t.secret", "shop._t_gho.own", "hr.*.salary"])
    assert tables.excluded_columns("shop", "t") == {"secret"}
    assert tables.excluded_columns("shop", "_t_gho") == {"secret", "own"}
    assert tables.excluded_columns("shop", "_t_old") == {"secret"}
    assert tables.excluded_columns("shop", VITESS) == {"secret", "own"}
    assert tables.excluded_columns("shop", "u") == frozenset()


def test_an_excluded_table_is_no_ghost() -> None:
    tables = TablesConfig(include=["shop.t"], exclude=["shop._t_new"])
    assert tables.ghost_of("shop", "_t_gho") == "t"
    assert tables.ghost_of("shop", "_t_new") is None
    assert tables.ghost_of("shop", "_u_gho") is None
    assert tables.wanted("shop", "_t_gho") is False
