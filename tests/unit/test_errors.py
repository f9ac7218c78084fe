"""Errors cross process borders whole: executors send them back to the driver."""

import pickle
import shlex

import pytest

from binlake import errors, names
from binlake.schema.table import TableName


def test_errors_survive_pickling() -> None:
    error = errors.CorruptEvent("checksum differs", file="b.000007", offset=99, remedy="look")
    back = pickle.loads(pickle.dumps(error))
    assert (type(back), str(back), back.file, back.offset) == (type(error), str(error), "b.000007", 99)


def test_exit_codes() -> None:
    assert errors.ConfigurationError("x").exit_code == 2
    assert errors.CheckFailed("x").exit_code == 1
    assert errors.PositionLost("x").exit_code == 3


@pytest.mark.parametrize("name", [TableName("shop", "orders"), TableName("my.db", "odd[1]*"), TableName("it's", "t")])
def test_a_command_in_a_remedy_names_the_table(name: TableName) -> None:
    *_, pattern = shlex.split(errors.snapshot_command(name))
    assert names.matches(pattern, name.database, name.table)
    assert shlex.split(errors.resume_command(name))[6] == str(name)
