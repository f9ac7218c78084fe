"""Keeping pandas out of processes that don't use it.

pyarrow imports pandas at the first ``pa.array`` or ``pa.table``, only to ask whether values are its own: 0.6 s of
processor time, a third of a small sync.
"""

import sys
from importlib.abc import MetaPathFinder


class _RefusedPandas(MetaPathFinder):
    """An import finder by which pandas seems not to be installed while Spark isn't imported, which may use it."""

    def find_spec(self, fullname: str, path: object = None, target: object = None) -> None:
        if fullname.partition(".")[0] == "pandas" and "pyspark" not in sys.modules:
            raise ModuleNotFoundError(f"{fullname} isn't imported by commands", name=fullname)


def keep_out() -> None:
    """Let pyarrow do without pandas in this process, unless Spark is imported before pyarrow asks for it."""
    sys.meta_path.insert(0, _RefusedPandas())
