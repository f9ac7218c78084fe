"""`make lock` asks for each package's wheels, for each machine and Python: uv is asked here of a folder's wheels."""

from __future__ import annotations

import hashlib
import zipfile
from pathlib import Path

import pytest

import wheels

X86, ARM = wheels.MACHINES


def publish(folder: Path, package: str, tag: str) -> str:
    """Put a wheel that has a package's name and nothing else into a folder; return its hash, as a lock file has it."""
    path = folder / f"{package}-1.0-{tag}.whl"
    with zipfile.ZipFile(path, "w") as archive:
        info = f"{package}-1.0.dist-info"
        archive.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
        archive.writestr(f"{info}/WHEEL", f"Wheel-Version: 1.0\nRoot-Is-Purelib: false\nTag: {tag}\n")
        archive.writestr(f"{info}/RECORD", "")
    return f"    --hash=sha256:{hashlib.sha256(path.read_bytes()).hexdigest()}"


@pytest.fixture
def lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A lock file of a package for all machines, and of one that has no wheel for arm64 on Python 3.14."""
    monkeypatch.setenv("UV_NO_INDEX", "1")
    monkeypatch.setenv("UV_FIND_LINKS", str(tmp_path))
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "cache"))
    pure = publish(tmp_path, "plain", "py3-none-any")
    hashes = [
        publish(tmp_path, "compiled", f"cp3{minor}-cp3{minor}-manylinux_2_28_{machine}")
        for machine, minors in {"x86_64": range(11, 15), "aarch64": range(11, 14)}.items()
        for minor in minors
    ]
    return (
        " \\\n".join(["compiled==1.0", *hashes])
        + f"\n    # via plain\nplain[extra]==1.0 \\\n{pure}\n    # via binlake\n"
    )


def test_a_machine_for_which_a_package_has_no_wheel_is_named(lock: str) -> None:
    said = list(wheels.lines(lock))
    assert [line for fits, line in said if not fits] == [f"Python 3.14 on {ARM}: no wheel of compiled"]
    assert (True, f"Python 3.14 on {X86}: all wheels are there") in said
    assert len(said) == 8


def test_what_has_a_wheel_for_each_machine_is_complete(lock: str) -> None:
    plain = wheels.locked(lock)["plain"]
    assert all(fits for fits, _ in wheels.lines(plain))


def test_whatever_else_is_wrong_is_said(lock: str) -> None:
    bad = {"plain": wheels.locked(lock)["plain"].replace("sha256:", "sha256:0")}
    assert "Invalid hash" in wheels.missing(bad, X86, "3.11")


def test_each_package_of_the_lock_file_is_asked_for() -> None:
    text = wheels.LOCK.read_text()
    entries = wheels.locked(text)
    assert len(entries) == sum("==" in line for line in text.splitlines() if line[:1].isalnum())
    assert set(wheels.BUILT) < set(entries)
    assert all("--hash=sha256:" in entry for entry in entries.values())
