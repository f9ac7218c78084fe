"""Makes jobs/binlake/binlog/warm.000001: a small real log that brings every kernel to work, for ``binlog.warm()``.

.venv/bin/python tests/integration/make_warm_binlog.py      (with docker/local on PYTHONPATH)
"""

from __future__ import annotations

import shutil
from pathlib import Path

from servers import Server

TARGET = Path(__file__).parents[2] / "jobs/binlake/binlog/warm.000001"

TABLE = """CREATE TABLE w.w (id BIGINT UNSIGNED PRIMARY KEY, i1 TINYINT, u2 SMALLINT UNSIGNED, i3 MEDIUMINT, f FLOAT,
  n DECIMAL(10,2), m DECIMAL(30,5), o DECIMAL(50,5), d DATE, dt DATETIME(6), ts TIMESTAMP(3) NULL, t TIME(2), y YEAR,
  b1 BIT(1), b9 BIT(9), c CHAR(9), v VARCHAR(300), l VARCHAR(20) CHARACTER SET latin1,
  j VARCHAR(20) CHARACTER SET ujis, bi BINARY(16), bl BLOB, e ENUM('a','b'), s SET('x','y'), js JSON, g POINT,
  ve VECTOR(2))"""
ROW = """INSERT INTO w.w VALUES ({id}, -1, 2, -3, 1.5, 1.25, -1.5, 2.5, '2020-01-01', '2020-01-01 01:02:03.4',
  '2020-01-01 00:00:00', '-01:02:03.4', 2020, 1, 257, 'ä', 'ö€', 'ü', '漢', x'01', 'x', 'b', 'x,y',
  '{{"a": [1, 2.5, "é", null, true]}}', POINT(1, 2), TO_VECTOR('[1,2]'))"""


def main() -> None:
    with Server("mysql") as server:
        server.execute("CREATE DATABASE w", TABLE, "FLUSH BINARY LOGS")
        server.execute(
            ROW.format(id=1), "UPDATE w.w SET i1 = 5", "UPDATE w.w SET v = NULL, js = NULL",
            "SET binlog_transaction_compression = ON", ROW.format(id=2), "DELETE FROM w.w",
        )  # fmt: skip
        file = server.execute("SHOW BINARY LOG STATUS")[0][0]
        shutil.copy(server.datadir / file, TARGET)
    TARGET.chmod(0o644)


if __name__ == "__main__":
    main()
