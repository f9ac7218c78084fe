"""100,000 doubles: our text is the server's, on both."""

from __future__ import annotations

import random
import struct
from collections.abc import Iterator

from binlake.schema import datatypes
from binlake.schema.doubles import double_text
from binlake.schema.table import Column
from servers import Server

COUNT = 100_000
AT_ONCE = 5_000


def doubles() -> Iterator[float]:
    chance = random.Random(20240506)
    for index in range(COUNT):
        form = index % 4
        if form == 0:
            value: float = struct.unpack("<d", struct.pack("<Q", chance.getrandbits(64)))[0]
        elif form == 1:
            value = chance.uniform(-1, 1) * 10.0 ** chance.randint(-20, 20)
        elif form == 2:
            value = round(chance.uniform(-1, 1) * 10.0 ** chance.randint(0, 18), chance.randint(0, 6))
        else:
            value = struct.unpack("<f", struct.pack("<f", chance.uniform(-1, 1) * 10.0 ** chance.randint(-37, 37)))[0]
        if value == value and abs(value) != float("inf") and value != 0:
            yield value


def test_our_text_of_a_double_is_the_servers(server: Server, database: str) -> None:
    values = list(doubles())
    text = datatypes.entry(Column("d", "double")).server_text(Column("d", "double"))
    server.execute("CREATE TABLE doubles (id INT PRIMARY KEY AUTO_INCREMENT, d DOUBLE)", database=database)
    for start in range(0, len(values), AT_ONCE):
        # Without an exponent a literal is a DECIMAL.
        rows = ", ".join(
            f"({value!r}{'' if 'e' in repr(value) else 'e0'})" for value in values[start : start + AT_ONCE]
        )
        server.execute(f"INSERT INTO doubles (d) VALUES {rows}", database=database)
    theirs = [row[0] for row in server.execute(f"SELECT {text} FROM doubles ORDER BY id", database=database)]
    ours = [f"[{double_text(value)}]" for value in values]
    assert [(a, b) for a, b in zip(theirs, ours, strict=True) if a != b] == []
