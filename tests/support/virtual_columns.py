"""Virtual columns, and whether the log tells their values: columns to compute them from, then declarations."""

from __future__ import annotations

from binlake.schema.virtual import leaves_generated_columns_out
from binlake.source.server import version_numbers
from servers import Server

COLUMNS = """
    pk INT AUTO_INCREMENT PRIMARY KEY, n INT, u BIGINT UNSIGNED, s VARCHAR(40), e ENUM('a', 'b'), d DATE, t TIME,
    dt DATETIME(6), ts TIMESTAMP NULL, j JSON, `odd ``name` INT
"""

COMPUTED = (
    "INT AS (n + 1)",
    "INT AS (n DIV 2 MOD 3 & 7 | 1 << 2)",
    "VARCHAR(50) AS (CONCAT(s, '-', e))",
    "VARCHAR(50) AS (TRIM(LEADING 'x' FROM s) COLLATE utf8mb4_bin)",
    "INT AS (CASE WHEN n IN (1, 2) AND NOT (s IS NULL) THEN `odd ``name` ELSE IF(n > 1, 2, 3) END)",
    "VARCHAR(9) AS (_latin1'abc')",
    "INT AS (s REGEXP '^a' XOR s LIKE 'b|%' ESCAPE '|')",
    "VARCHAR(50) AS (JSON_UNQUOTE(JSON_EXTRACT(j, '$.a')))",
    "INT AS (UNIX_TIMESTAMP(ts))",
    "VARCHAR(20) AS (DATE_FORMAT(dt, '%Y-%m'))",
    "DATE AS (CAST(dt AS DATE))",
    "DATE AS (DATE(dt + INTERVAL 1 DAY))",
    "DATE AS (STR_TO_DATE(s, '%d.%m.%Y'))",
    "DATETIME AS (TIMESTAMP(d, t))",
    "INT AS (HOUR(TIMEDIFF(dt, d)))",
    "TIME AS (t)",
    "INT AS (WEEK(d, 3))",
    "VARCHAR(60) AS (CONCAT(s, YEAR(d)))",
    "VARCHAR(60) AS (SHA2(s, 256))",
)
REFUSED = (
    ("DATETIME AS (FROM_UNIXTIME(n))", "FROM_UNIXTIME"),
    ("DATE AS (DATE(ts))", "TIMESTAMP 'ts'"),
    ("INT AS (ts > '2020-01-01')", "TIMESTAMP 'ts'"),
    ("INT AS (UNIX_TIMESTAMP(dt))", "UNIX_TIMESTAMP"),
    ("TIMESTAMP AS (dt)", "a TIMESTAMP is computed"),
    ("VARCHAR(20) AS (DAYNAME(dt))", "DAYNAME"),
    ("VARCHAR(20) AS (DATE_FORMAT(dt, '%M'))", "language"),
    ("VARCHAR(20) AS (DATE_FORMAT(dt, s))", "language"),
    ("DATETIME AS (NOW())", "NOW"),
    ("DATE AS (CURRENT_DATE)", "CURRENT_DATE"),
    ("VARCHAR(40) AS (CONCAT(s, UUID()))", "UUID"),
    ("VARCHAR(40) AS (@@sql_mode)", "variables"),
    ("INT AS (n + @n)", "variables"),
    ("INT AS (elsewhere(n))", "ELSEWHERE"),
    ("INT AS (unknown_column)", "unknown_column"),
    ("DATETIME AS (t)", "a TIME becomes a date"),
    ("DATETIME AS (CAST(t AS DATETIME))", "a TIME becomes a date"),
    ("INT AS (t > dt)", "a TIME becomes a date"),
    ("VARCHAR(20) AS (CONCAT('A', pk))", "AUTO_INCREMENT"),
    ("INT AS (pk DIV 2)", "AUTO_INCREMENT"),
)
OFFSETS = (
    "DATETIME AS (s)",
    "DATE AS (CAST(s AS DATE))",
    "DATETIME AS (JSON_UNQUOTE(JSON_EXTRACT(j, '$.d')))",
    "DATETIME AS (IF(n > 1, s, dt))",
    "DATETIME AS (s + INTERVAL 1 HOUR)",
    "INT AS (HOUR(CONCAT(s, '')))",
    "DATETIME AS ('2020-01-02 18:00:00+00:00')",
)


def are_all_logged(server: Server) -> bool:
    """Whether the server's log has generated columns in updates and deletes, too."""
    return server.kind == "mysql" or not leaves_generated_columns_out(version_numbers(server.variable("version")))
