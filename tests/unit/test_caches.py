"""What a process keeps has its bound in one list; what threads ask for at the same time is made by one of them."""

from __future__ import annotations

import ast
import os
import re
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import binlake
from binlake import caches
from binlake.caches import BOUNDS, Cache, CacheBound, once, remembered

ROOTS = Path(binlake.__file__).parent, Path(binlake.__file__).parents[2] / "plugins"
TEXTS = {path: path.read_text(encoding="utf-8") for root in ROOTS for path in root.rglob("*.py")}


@pytest.fixture
def bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three caches: of two values, any of which goes, of four letters, the oldest of which go, and without a bound."""
    monkeypatch.setattr(caches, "_weights", {})
    known = {
        "values": CacheBound(2, "values"),
        "texts": CacheBound(4, "letters", oldest_first=True),
        "squares": CacheBound(None, "numbers"),
    }
    monkeypatch.setattr(caches, "BOUNDS", known)


def test_of_more_than_may_be_kept_any_goes(bounds: None) -> None:
    cache: Cache[int, str] = Cache("values")
    for number in range(9):
        cache.put(number, f"value {number}")
    kept = [number for number in range(9) if cache.get(number) == f"value {number}"]
    assert (len(kept), cache.weight) == (2, 2)
    assert cache.take(kept[0]) == f"value {kept[0]}"
    cache.drop([kept[1], 99])
    assert (cache.get(kept[0]), cache.get(kept[1]), cache.weight) == (None, None, 0)


def test_of_more_than_may_be_kept_the_oldest_goes_by_weight(bounds: None) -> None:
    cache: Cache[str, str] = Cache("texts", len)
    for key, text in (("a", "xx"), ("b", "x"), ("a", "x"), ("c", "xx"), ("d", "x")):
        cache.put(key, text)
    assert [cache.get(key) for key in "abcd"] == ["x", None, "xx", "x"]
    cache.put("too large", "xxxxx")
    assert (cache.get("too large"), cache.weight) == (None, 0)


def test_each_cache_tells_how_much_it_keeps(bounds: None) -> None:
    @remembered("squares")
    def square(number: int) -> int:
        return number * number

    assert [square(number) for number in (2, 3, 2)] == [4, 9, 4]
    Cache[str, str]("texts", len).put("a", "xxx")
    assert caches.described() == [
        "cache of values: 0 of 2 values", "cache of texts: 3 of 4 letters", "cache of squares: 2 of all numbers",
    ]  # fmt: skip


def test_a_forked_process_sees_nothing_of_another(bounds: None, monkeypatch: pytest.MonkeyPatch) -> None:
    cache: Cache[str, str] = Cache("values")
    cache.put("a", "of the parent")
    monkeypatch.setattr(os, "getpid", lambda: -1)
    assert cache.get("a") is None


def test_the_list_has_every_cache_and_no_other() -> None:
    made = [name for text in TEXTS.values() for name in re.findall(r'(?:@remembered|= Cache)\("([^"]+)"', text)]
    assert sorted(made) == sorted(BOUNDS)


def test_no_function_of_arguments_keeps_its_results_by_itself() -> None:
    wrong = []
    for path, text in TEXTS.items():
        functions = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.FunctionDef)]
        for function in functions:
            decorators = {ast.unparse(decorator).split("(")[0] for decorator in function.decorator_list}
            if function.args.args and decorators & {"cache", "lru_cache"}:
                wrong.append(f"{path.name}: {function.name}")
    assert wrong == []


def test_threads_that_ask_at_once_are_given_the_same() -> None:
    made: list[object] = []

    @once
    def thing(name: str) -> object:
        time.sleep(0.05)
        made.append(object())
        return made[-1]

    with ThreadPoolExecutor(8) as pool:
        given = {*pool.map(thing, ["one"] * 8)}
    assert given == {*made}
    assert len(made) == 1
    assert thing("another") is not thing("one")


def test_what_failed_is_tried_again() -> None:
    tries = iter([False, True])

    @once
    def thing() -> str:
        if not next(tries):
            raise OSError("not now")
        return "made"

    with pytest.raises(OSError, match="not now"):
        thing()
    assert thing() == "made"
