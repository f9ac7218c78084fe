"""Errors cross process borders whole: executors send them back to the driver."""

import pickle

from binlake import errors


def test_errors_survive_pickling() -> None:
    error = errors.CorruptEvent("checksum differs", file="b.000007", offset=99, remedy="look")
    back = pickle.loads(pickle.dumps(error))
    assert (type(back), str(back), back.file, back.offset) == (type(error), str(error), "b.000007", 99)


def test_exit_codes() -> None:
    assert errors.ConfigurationError("x").exit_code == 2
    assert errors.CheckFailed("x").exit_code == 1
    assert errors.PositionLost("x").exit_code == 3
