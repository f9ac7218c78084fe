"""TPC-H's eight tables copied by whole ``binlake snapshot`` processes, by each of the two readers.

bench_tpch.py [SCALE]    the scale factor, 1 without it: 8.7 million rows; the figures are added to .binlake/bench.json

The rows are those of DuckDB's dbgen (``setup.sh tpch`` brings it). It prints rows per second of processor time of
the whole run, from the start of Python to the end of the JVM where there is one, the server's left out.
"""

from __future__ import annotations

import os
import shutil
import sys

import duckdb

from bench_figures import Figure, keep, show
from bench_sync import run
from binlake.report import Report
from servers import PRIVATE, Server

HOME = PRIVATE / "bench" / "tpch"
DBGEN = PRIVATE / "tpch" / "duckdb_extension_tpch" / "extensions" / f"v{duckdb.__version__}" / "tpch.duckdb_extension"
READERS = ("direct", "jdbc")
_YAML = """
source: {name: tpch, connection: tpch, server_id: 6510}
tables: {include: ["tpch.*"]}
lake: {path: LAKE}
snapshot: {reader: READER}
"""
_DECIMAL = "DECIMAL(15,2) NOT NULL"
TABLES = {
    "region": "r_regionkey INT PRIMARY KEY, r_name CHAR(25) NOT NULL, r_comment VARCHAR(152)",
    "nation": "n_nationkey INT PRIMARY KEY, n_name CHAR(25) NOT NULL, n_regionkey INT NOT NULL, n_comment VARCHAR(152)",
    "supplier": f"""s_suppkey INT PRIMARY KEY, s_name CHAR(25) NOT NULL, s_address VARCHAR(40) NOT NULL,
        s_nationkey INT NOT NULL, s_phone CHAR(15) NOT NULL, s_acctbal {_DECIMAL}, s_comment VARCHAR(101) NOT NULL""",
    "customer": f"""c_custkey INT PRIMARY KEY, c_name VARCHAR(25) NOT NULL, c_address VARCHAR(40) NOT NULL,
        c_nationkey INT NOT NULL, c_phone CHAR(15) NOT NULL, c_acctbal {_DECIMAL}, c_mktsegment CHAR(10) NOT NULL,
        c_comment VARCHAR(117) NOT NULL""",
    "part": f"""p_partkey INT PRIMARY KEY, p_name VARCHAR(55) NOT NULL, p_mfgr CHAR(25) NOT NULL,
        p_brand CHAR(10) NOT NULL, p_type VARCHAR(25) NOT NULL, p_size INT NOT NULL, p_container CHAR(10) NOT NULL,
        p_retailprice {_DECIMAL}, p_comment VARCHAR(23) NOT NULL""",
    "partsupp": f"""ps_partkey INT NOT NULL, ps_suppkey INT NOT NULL, ps_availqty INT NOT NULL,
        ps_supplycost {_DECIMAL}, ps_comment VARCHAR(199) NOT NULL, PRIMARY KEY (ps_partkey, ps_suppkey)""",
    "orders": f"""o_orderkey BIGINT PRIMARY KEY, o_custkey INT NOT NULL, o_orderstatus CHAR(1) NOT NULL,
        o_totalprice {_DECIMAL}, o_orderdate DATE NOT NULL, o_orderpriority CHAR(15) NOT NULL,
        o_clerk CHAR(15) NOT NULL, o_shippriority INT NOT NULL, o_comment VARCHAR(79) NOT NULL""",
    "lineitem": f"""l_orderkey BIGINT NOT NULL, l_partkey INT NOT NULL, l_suppkey INT NOT NULL,
        l_linenumber INT NOT NULL, l_quantity {_DECIMAL}, l_extendedprice {_DECIMAL}, l_discount {_DECIMAL},
        l_tax {_DECIMAL}, l_returnflag CHAR(1) NOT NULL, l_linestatus CHAR(1) NOT NULL, l_shipdate DATE NOT NULL,
        l_commitdate DATE NOT NULL, l_receiptdate DATE NOT NULL, l_shipinstruct CHAR(25) NOT NULL,
        l_shipmode CHAR(10) NOT NULL, l_comment VARCHAR(44) NOT NULL, PRIMARY KEY (l_orderkey, l_linenumber)""",
}
"""The columns of each table, of TPC-H's types."""


def fill(server: Server, scale: float) -> int:
    """The tables, outside the server's log; gives the number of their rows."""
    maker = duckdb.connect(config={"allow_unsigned_extensions": "true"})
    maker.execute(f"LOAD '{DBGEN.resolve()}'")
    maker.execute(f"CALL dbgen(sf = {scale})")
    server.execute("CREATE DATABASE tpch")
    rows = 0
    for table, columns in TABLES.items():
        server.execute(f"CREATE TABLE tpch.{table} ({columns})")
        text = (HOME / f"{table}.tsv").resolve()
        maker.execute(f"COPY {table} TO '{text}' (DELIMITER '\t', HEADER false, QUOTE '', ESCAPE '')")
        with server.connect(local_infile=True, database="tpch") as connection, connection.cursor() as cursor:
            cursor.execute("SET sql_log_bin = 0")
            rows += cursor.execute(f"LOAD DATA LOCAL INFILE '{text}' INTO TABLE {table} FIELDS ESCAPED BY ''")
            cursor.execute(f"ANALYZE TABLE {table}")
        text.unlink()
    return rows


def copied(reader: str, scale: float, rows: int) -> list[Figure]:
    """A whole process that copies all tables into a new lake."""
    file, lake = HOME / f"{reader}.yaml", HOME / f"lake-{reader}"
    os.environ["XDG_STATE_HOME"] = str(HOME / f"state-{reader}")  # another lake of the same source was here before
    file.write_text(_YAML.replace("LAKE", str(lake.resolve())).replace("READER", reader))
    cost = run("snapshot", file)
    shutil.rmtree(lake)
    what = f"snapshot of TPC-H at scale {scale:g}, reader: {reader}, whole process"
    return [(what, cost.seconds, "s"), (f"{what}, all cores", rows / cost.cpu_seconds, "rows per CPU s")]


def figures(scale: float, report: Report) -> list[Figure]:
    shutil.rmtree(HOME, ignore_errors=True)
    HOME.mkdir(parents=True)
    measured: list[Figure] = []
    with Server("mysql", local_infile=True, innodb_redo_log_capacity="512M", innodb_buffer_pool_size="1G") as server:
        os.environ["AIRFLOW_CONN_TPCH"] = server.uri()
        report.say(f"TPC-H's tables at scale {scale:g} …")
        rows = fill(server, scale)
        for reader in READERS:
            report.say(f"{rows:,} rows copied, reader: {reader} …")
            measured += copied(reader, scale, rows)
    shutil.rmtree(HOME)
    return measured


if __name__ == "__main__":
    asked = float(sys.argv[1]) if len(sys.argv) > 1 else 1
    of_readers = figures(asked, Report())
    show("TPC-H", of_readers)
    keep(of_readers)
