"""How many tasks run at once where Spark runs inside the process."""

import os

from binlake.lake.session import _on_this_machine


def test_connections_that_wait_for_the_server_need_no_core() -> None:
    cores = os.cpu_count() or 1
    assert _on_this_machine(None) == "local[*]"
    assert _on_this_machine(cores + 3) == f"local[{cores + 3}]"
    assert _on_this_machine(1) == f"local[{cores}]"
