"""Which tables change below the log, through how many levels."""

from binlake.schema.cascades import Cascade, touched
from binlake.schema.table import TableName

GRANDPARENT, PARENT, CHILD, OTHER = (TableName("d", name) for name in ("grandparent", "parent", "child", "other"))
CASCADES = [
    Cascade(CHILD, PARENT, "c", ("p",), ("id",), "SET NULL", "RESTRICT"),
    Cascade(PARENT, GRANDPARENT, "p", ("g",), ("id",), "NO ACTION", "CASCADE"),
    Cascade(OTHER, OTHER, "o", ("up",), ("id",), "CASCADE", "CASCADE"),
]


def test_children_change_where_the_action_fits() -> None:
    assert touched(CASCADES, deleted=[PARENT], updated=[]).keys() == {CHILD}
    assert touched(CASCADES, deleted=[], updated=[PARENT]).keys() == set()
    assert touched(CASCADES, deleted=[GRANDPARENT], updated=[]).keys() == set()


def test_what_changed_unlogged_acts_on_its_own_children() -> None:
    by_child = touched(CASCADES, deleted=[], updated=[GRANDPARENT])
    assert {child: how.key for child, how in by_child.items()} == {PARENT: "p", CHILD: "c"}


def test_a_table_may_refer_to_itself() -> None:
    assert touched(CASCADES, deleted=[OTHER], updated=[]).keys() == {OTHER}
