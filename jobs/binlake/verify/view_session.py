"""The sessions of read views, in this process and in Spark's executors."""

from __future__ import annotations

from binlake.snapshot import jdbc
from binlake.source.server import Source

STATEMENT_TIMEOUT = 24 * 3600
"""The most seconds that a statement over a large table may take."""
SAVEPOINT = "binlake_view"
"""The savepoint to which a view goes back behind each query."""


def set_session(source: Source) -> None:
    """Set the session of a connection that reads rows. Raises SourceError."""
    for variable in jdbc.session_variables(source.is_mariadb):
        source.execute(f"SET SESSION {variable}")
