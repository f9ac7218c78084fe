"""The wheel alone, in an environment of its own."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

from binlake.spark import settings
from mirror import SHORT_LIVED

ROOT = Path(__file__).parents[2]


def bare() -> dict[str, str]:
    """Of the environment's variables those that tell nothing of this checkout."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "BINLAKE"))}
    return {**kept, **SHORT_LIVED}


def run(folder: Path, *command: str | Path, **environment: str) -> str:
    """In an empty folder, with nothing of this checkout in reach."""
    done = subprocess.run(
        command, cwd=folder, env={**bare(), **environment}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    return done.stdout + done.stderr


def uv() -> str:
    return shutil.which("uv") or str(Path(sys.executable).parent / "uv")


def build(folder: Path) -> tuple[Path, Path]:
    """The archive of sources, and the wheel that is built of it."""
    run(folder, uv(), "build", "-q", "--out-dir", folder / "built", ROOT)
    (sources,) = (folder / "built").glob("*.tar.gz")
    (wheel,) = (folder / "built").glob("*.whl")
    return sources, wheel


def fresh_environment(folder: Path) -> Path:
    """A fresh one with the wheel; the packages it is on are lent by this one, and the kernels it has compiled."""
    _, wheel = build(folder)
    fresh = folder / "environment"
    run(folder, sys.executable, "-m", "venv", "--without-pip", fresh)
    run(folder, uv(), "pip", "install", "-q", "--no-deps", "--python", fresh / "bin" / "python", wheel)
    (packages,) = (fresh / "lib").glob("python*/site-packages")
    # A .pth that is in a folder named by a .pth isn't read, so the checkout itself isn't lent.
    (packages / "lent.pth").write_text(sysconfig.get_path("purelib"))
    kernels = fresh / "share" / "binlake" / "numba"
    ignored = shutil.ignore_patterns("*.tmp.*")  # of processes that compile at the moment
    shutil.copytree(settings.SHARE / "numba", kernels, ignore=ignored, dirs_exist_ok=True)
    return fresh
