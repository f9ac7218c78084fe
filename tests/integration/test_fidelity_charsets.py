"""Every character set that a server lists, code by code: the log's bytes become what the server converts them to.

All codes of one byte, all of two and of three behind 0x8f where the set has them; of Unicode's forms and GB18030 the
whole plane of everyday characters in small steps, and samples of the others up to the last.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import pyarrow as pa
import pytest

from binlake.binlog.border import Mutations, Stopped
from binlake.kernels.layouts import SLACK
from binlake.schema import strings
from binlog_slices import from_server, read_all, written
from servers import KINDS, Kind, Server
from shared_servers import SharedServers

_UNICODE = {
    "utf8mb3": "utf-8", "utf8mb4": "utf-8", "utf16": "utf-16-be", "utf16le": "utf-16-le", "ucs2": "utf-16-be",
    "utf32": "utf-32-be", "gb18030": "gb18030",
}  # fmt: skip
_ONLY_BMP = {"utf8mb3", "ucs2"}
_PART = 4096
"""Codes in one statement."""


def _points(charset: str) -> Iterable[int]:
    """Code points, without surrogates."""
    step = 1 if charset in ("utf8mb4", "gb18030") else 7
    yield from (point for point in range(0, 0x10000, step) if not 0xD800 <= point <= 0xDFFF)
    yield from (0x7F, 0x80, 0x7FF, 0x800, 0xD7FF, 0xE000, 0xFFFD, 0xFFFE, 0xFFFF)
    if charset not in _ONLY_BMP:
        yield from range(0x10000, 0x110000, 509)
        yield from (0x10000, 0x1F600, 0x10FFFE, 0x10FFFF)


def codes(charset: str, longest: int) -> list[bytes]:
    single = [bytes([byte]) for byte in range(256)]
    if charset in _UNICODE:
        encodings = {chr(point).encode(_UNICODE[charset]) for point in _points(charset)}
        pairs = [bytes([a, b]) for a in range(0x81, 0xFF) for b in range(0x40, 0xFF)] if charset == "gb18030" else []
        return sorted({*encodings, *pairs})
    double = [bytes([a, b]) for a in range(0x80, 256) for b in range(256)] if longest > 1 else []
    triple = [bytes([0x8F, a, b]) for a in range(0x80, 256) for b in range(0x80, 256)] if longest > 2 else []
    return single + double + triple


LISTED = sorted(
    """armscii8 ascii big5 binary cp1250 cp1251 cp1256 cp1257 cp850 cp852 cp866 cp932 dec8 eucjpms euckr gb18030 gb2312
    gbk geostd8 greek hebrew hp8 keybcs2 koi8r koi8u latin1 latin2 latin5 latin7 macce macroman sjis swe7 tis620 ucs2
    ujis utf16 utf16le utf32 utf8mb3 utf8mb4""".split()  # noqa: SIM905
)


REFUSED = {("mysql", "ascii"): 128, ("mariadb", "ascii"): 128, ("mysql", "ujis"): 1, ("mysql", "eucjpms"): 97}
"""How many of the codes that a server converts stop the table: bytes above ASCII, which MariaDB stores, too, and
halves of codes."""


def of_server(server: Server) -> dict[str, int]:
    """Character sets and the most bytes of a character."""
    rows = server.execute("SELECT character_set_name, maxlen FROM information_schema.character_sets")
    return {name: int(longest) for name, longest in rows}


def test_no_character_set_is_left_out(mysql_server: Server, mariadb_server: Server) -> None:
    assert set(LISTED) == set(of_server(mysql_server)) | set(of_server(mariadb_server))
    assert set(LISTED) - set(of_server(mysql_server)) == set()
    assert set(LISTED) - set(of_server(mariadb_server)) == {"gb18030"}


def _values(asked: list[bytes]) -> Iterator[str]:
    """Rows (number, code) as SQL, some thousands at once."""
    for start in range(0, len(asked), _PART):
        part = enumerate(asked[start : start + _PART], start)
        yield ", ".join(f"({number}, X'{code.hex()}')" for number, code in part)


def _text(converted: str | None) -> str | None:
    return None if converted is None else bytes.fromhex(converted).decode()


def is_refused(charset: str, code: bytes) -> bool:
    padded = np.frombuffer(bytearray(code + bytes(SLACK)), np.uint8)
    try:
        strings.converter(charset)(np.array([0, len(code)], np.int32), padded)
    except strings.BadValue:
        return True
    return False


@pytest.mark.parametrize("charset", [name for name in LISTED if name != "binary"])
@pytest.mark.parametrize("kind", KINDS)
def test_codes_are_what_the_server_converts_them_to(shared_servers: SharedServers, kind: Kind, charset: str) -> None:
    server = shared_servers.of(kind)
    longest = of_server(server).get(charset)
    if longest is None:
        assert (kind, charset) == ("mariadb", "gb18030")
        return
    database = f"codes_{charset}"
    asked = codes(charset, longest)
    server.execute(
        f"CREATE DATABASE {database} CHARACTER SET utf8mb4",
        f"CREATE TABLE {database}.c (id INT PRIMARY KEY, v VARCHAR(4) CHARACTER SET {charset})",
        f"CREATE TABLE {database}.x (id INT PRIMARY KEY, b VARBINARY(4))",
        *(f"INSERT INTO {database}.x VALUES {some}" for some in _values(asked)),
    )
    try:
        # What isn't a string of the character set at all can't be stored in the column.
        sound = f"HEX(CONVERT(b USING {charset})) = HEX(b)"
        rows = server.execute(
            f"SELECT id, b, HEX(CONVERT(CONVERT(b USING {charset}) USING utf8mb4)) FROM {database}.x WHERE {sound}"
        )
        texts = {key: (code, _text(converted)) for key, code, converted in rows}
        refused = [code for code, _ in texts.values() if is_refused(charset, code)]
        assert len(refused) == REFUSED.get((kind, charset), 0)
        mapped = {key: text for key, (code, text) in texts.items() if code not in refused}
        assert len(mapped) >= 127
        keys = ", ".join(map(str, mapped))
        with written(server) as made:
            server.execute(
                f"INSERT IGNORE INTO {database}.c"
                f" SELECT id, CONVERT(b USING {charset}) FROM {database}.x WHERE id IN ({keys})"
            )
        stored = server.execute(
            f"SELECT id, HEX(CONVERT(v USING utf8mb4)), HEX(v) = HEX(b) FROM {database}.c JOIN {database}.x USING (id)"
        )
        emitted = read_all(from_server(server), made.part, database)
    finally:
        server.execute(f"DROP DATABASE {database}")
    assert not [item for item in emitted if isinstance(item, Stopped)]
    images = [item.batch.column("after") for item in emitted if isinstance(item, Mutations) and item.name.table == "c"]
    decoded = pa.chunked_array(images).combine_chunks()
    by_id = dict(zip(decoded.field("id").to_pylist(), decoded.field("v").to_pylist(), strict=True))
    assert by_id == {key: _text(converted) for key, converted, _ in stored}
    whole = {key for key, _, is_whole in stored if is_whole}  # a column takes a few codes less than CONVERT
    assert len(whole) > 0.99 * len(mapped)
    assert {key: by_id[key] for key in whole} == {key: mapped[key] for key in whole}
