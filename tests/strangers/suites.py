"""The servers' own test suites, as ``setup.sh suites`` left them: which files there are, and what they include."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from servers import KINDS, PRIVATE, Kind

FOLDER = PRIVATE / "strangers"
_NOT_FOLLOWED = (
    # Replicas, restarts and other servers; what only asks whether a test may run, waits, or shows something.
    "master-slave", "init_source_replica", "rpl_init", "rpl_end", "deinit", "have_", "not_", "is_", "wait_", "sync_",
    "show_", "restart", "shutdown", "kill_", "start_", "stop_", "assert", "grep", "count_sessions", "check_", "diff_",
    "big_test", "linux", "windows", "long_test", "no_", "galera", "wsrep", "install_", "uninstall_", "load_",
    "mysqlbinlog", "get_", "save_", "expect_", "crash", "force_", "turn_", "federated", "search_pattern",
)  # fmt: skip


@dataclass(frozen=True)
class Suite:
    """One server's suites. ``root`` is the folder that includes are named from."""

    kind: Kind
    root: Path

    @property
    def main(self) -> Path:
        return self.root / ("t" if self.kind == "mysql" else "main")

    def files(self, *names: str) -> list[Path]:
        """The .test files of the suites named (``main``, ``rpl``, ``json`` …), in order; unknown suites have none."""
        folders = [self.main if name == "main" else self.root / "suite" / name for name in names]
        return sorted(path for folder in folders for path in folder.rglob("*.test"))

    def name(self, path: Path) -> str:
        """``main/alter_table``, ``rpl/rpl_row_basic``."""
        if path.is_relative_to(self.main):
            return f"main/{path.stem}"
        return f"{path.relative_to(self.root / 'suite').parts[0]}/{path.stem}"

    def included(self, name: str, beside: Path) -> Path | None:
        """The file that ``source name`` means in a file of the folder; None for what isn't followed or isn't there.

        From the root, else beside the file or in a folder above it (client/mysqltest.cc, open_file).
        """
        if Path(name).name.startswith(_NOT_FOLLOWED):
            return None
        folders = [self.root, beside, *beside.parents]
        paths = (folder / name for folder in folders if folder == self.root or folder.is_relative_to(self.root))
        return next(
            (path for path in paths if path.is_file() and path.resolve().is_relative_to(FOLDER.resolve())), None
        )


def suites() -> list[Suite]:
    """Those that are unpacked. Raises FileNotFoundError, which says what to run, where none is."""
    unpacked = [Suite(kind, FOLDER / kind) for kind in KINDS if (FOLDER / kind).is_dir()]
    if not unpacked:
        raise FileNotFoundError(f"no server's test suite is in {FOLDER}: run docker/local/setup.sh suites")
    return unpacked


def read(path: Path) -> str:
    """Bytes that aren't UTF-8 come through as surrogates, and are sent to the server as they stand."""
    return path.read_bytes().decode("utf-8", "surrogateescape")
