"""Makes jobs/binlake/schema/charset_tables.npz: what MySQL itself converts each code to, asked of a running server.

    .venv/bin/python tests/integration/make_charset_tables.py HOST PORT USER

The password comes from MYSQL_PWD. Run it against the newest MySQL; both servers of the tests agree on the result.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import numpy as np
import pymysql

UNICODE = {"binary", "utf8mb3", "utf8mb4", "utf16", "utf16le", "utf32", "ucs2"}
TABLES = Path(__file__).parents[2] / "jobs/binlake/schema/charset_tables.npz"


def codes(length: int) -> list[bytes]:
    """Every code of one byte; of two with a lead byte from 0x80; of three behind 0x8f."""
    if length == 1:
        return [bytes([a]) for a in range(256)]
    if length == 2:
        return [bytes([a, b]) for a in range(0x80, 256) for b in range(256)]
    return [bytes([0x8F, a, b]) for a in range(0x80, 256) for b in range(0x80, 256)]


def table(cursor: pymysql.cursors.Cursor, charset: str, length: int) -> np.ndarray:
    """Code points in the order of ``codes(length)``; 0 where the code can't be stored (but code 0 itself is 0), that of
    ``?`` also where it can, and stands for no character of Unicode."""
    asked = codes(length)
    result = np.zeros(len(asked), np.uint16)
    for start in range(0, len(asked), 8192):
        part = [code.hex() for code in asked[start : start + 8192]]
        cursor.execute(
            f"SELECT HEX(CONVERT(CONVERT(UNHEX(h) USING {charset}) USING utf8mb4)), "
            f"CHAR_LENGTH(CONVERT(UNHEX(h) USING {charset})) "
            "FROM JSON_TABLE(%s, '$[*]' COLUMNS (n FOR ORDINALITY, h VARCHAR(8) PATH '$')) j ORDER BY n",
            (json.dumps(part),),
        )
        for place, (converted, characters) in enumerate(cursor.fetchall(), start):
            text = bytes.fromhex(converted or "").decode()
            if characters == 1 and len(text) == 1:
                result[place] = ord(text)
    return result


def main() -> None:
    host, port, user = sys.argv[1:]
    password = os.environ.get("MYSQL_PWD", "")
    connection = pymysql.connect(host=host, port=int(port), user=user, password=password, charset="utf8mb4")
    cursor = connection.cursor()
    cursor.execute("SELECT character_set_name, maxlen FROM information_schema.character_sets")
    arrays: dict[str, np.ndarray] = {}
    for charset, longest in cursor.fetchall():
        if charset in UNICODE:
            continue
        for length in range(1, min(longest, 3) + 1 if charset != "gb18030" else 3):
            arrays[f"{charset}{length}"] = table(cursor, charset, length)
    np.savez_compressed(TABLES, **arrays)
    print(f"{TABLES}: {TABLES.stat().st_size} bytes, {len(arrays)} tables")


if __name__ == "__main__":
    main()
