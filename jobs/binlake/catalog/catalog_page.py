"""The catalog's page: its warehouses, and lines to copy for each engine, as HTML without scripts. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape

from binlake import names
from binlake.relay.html_pages import html_page, html_table
from binlake.schema.table import TableName

MOST_TABLES = 500
"""The most tables of a source that are listed."""
_STYLE = """
section { border-top: 1px solid #d8dee4; margin-top: 1.6rem; }
.wide { overflow-x: auto; }
.wide td { white-space: nowrap; } .wide td:first-child { font-family: ui-monospace, monospace; }
.wide td:last-child { white-space: normal; min-width: 18rem; overflow-wrap: anywhere; }
ul { list-style: none; margin: 0.3rem 0 0.8rem; padding: 0; display: flex; flex-wrap: wrap; gap: 0.3rem; }
li { background: #f1f4f7; border-radius: 0.3rem; padding: 0.1rem 0.5rem; overflow-wrap: anywhere; }
details { margin: 0.3rem 0; } summary { cursor: pointer; font-weight: 600; }
pre { background: #f1f4f7; border-radius: 0.3rem; padding: 0.7rem; margin: 0.4rem 0; overflow-x: auto;
  font: 13px/1.5 ui-monospace, monospace; user-select: all; }
.quiet { color: #57636f; }
@media (prefers-color-scheme: dark) { section { border-color: #2e3843; } li, pre { background: #1f2730; }
  .quiet { color: #9aa7b3; } }
"""


@dataclass(frozen=True)
class ShownBatch:
    """A batch that can be read. warehouse: by which it is asked for."""

    warehouse: str
    batch: int
    committed: str
    position: str


@dataclass(frozen=True)
class ShownSource:
    """A source. batches: the newest first. tables: of the newest batch. refusal: why nothing of it can be read."""

    name: str
    batches: Sequence[ShownBatch] = ()
    tables: Sequence[TableName] = ()
    refusal: str = ""


@dataclass(frozen=True)
class CatalogAddress:
    """How the catalog is reached. asks: whether it asks for a token."""

    url: str
    asks: bool


def page(sources: Sequence[ShownSource], served: CatalogAddress) -> str:
    """Return the page."""
    about = "<p>Each batch is a warehouse: all tables of a source at one position of its server's log.</p>"
    none = "" if sources else "<p>The catalog has nothing that you may read.</p>"
    sections = (_section(source, served) for source in sources)
    return html_page("binlake catalog", "The lake as an Iceberg catalog", [about, none, *sections], style=_STYLE)


def _section(source: ShownSource, served: CatalogAddress) -> str:
    parts = [f"<h2>{escape(source.name)}</h2>"]
    if source.refusal:
        parts.append(f"<p>{escape(source.refusal)}</p>")
    if source.batches:
        rows = [(each.warehouse, each.batch, each.committed, each.position) for each in source.batches]
        listed = html_table(("Name", "Batch", "Committed", "Position"), rows)
        parts.append(f'<h3>Warehouses</h3><div class="wide">{listed}</div>')
        parts.append(
            f'<p class="quiet">Also <code>{escape(source.name)}@</code> any other batch, a time such as '
            "<code>2026-11-29T08:00</code>, or <code>newest</code>, which moves on with each request.</p>"
        )
    parts += _tables(source.tables)
    if source.batches and source.tables:
        parts.append("<h3>Lines to copy</h3>")
        for number, (engine, lines) in enumerate(engine_lines(source, served)):
            is_open = " open" if number == 0 else ""
            parts.append(f"<details{is_open}><summary>{engine}</summary><pre>{escape(lines)}</pre></details>")
    return f"<section>{''.join(parts)}</section>\n"


def _tables(tables: Sequence[TableName]) -> Iterator[str]:
    for database in dict.fromkeys(name.database for name in tables[:MOST_TABLES]):
        items = [names.shown(name.table) for name in tables[:MOST_TABLES] if name.database == database]
        listed = "".join(f"<li>{escape(item)}</li>" for item in items)
        yield f"<h3>Tables of {escape(names.shown(database))}</h3><ul>{listed}</ul>"
    if len(tables) > MOST_TABLES:
        yield f'<p class="quiet">and {len(tables) - MOST_TABLES:,} more</p>'


def engine_lines(source: ShownSource, served: CatalogAddress) -> Iterator[tuple[str, str]]:
    """Yield each engine's name, and the lines with which it reads a table of a source, of which batches are known."""
    yield "DuckDB", _duckdb(source, served)
    yield "pyiceberg", _pyiceberg(source, served)
    yield "polars", _polars(source, served)
    yield "Spark", _spark(source, served)
    yield "Trino", _trino(source, served)


def _duckdb(source: ShownSource, served: CatalogAddress) -> str:
    table, now = source.tables[0], names.ansi_quote(source.name)
    lines = ["INSTALL iceberg; LOAD iceberg; INSTALL httpfs; LOAD httpfs;"]
    door = "AUTHORIZATION_TYPE 'none'"
    if served.asks:
        door = f"SECRET {names.ansi_quote(source.name)}"
        lines += [
            f"CREATE SECRET {now} (TYPE iceberg, CLIENT_ID 'ID', CLIENT_SECRET 'SECRET',",
            f"    OAUTH2_SERVER_URI {names.ansi_string(served.url + '/v1/oauth/tokens')});",
        ]
    for warehouse, alias in ((source.name, now), (source.batches[:2][-1].warehouse, "before")):
        place = names.ansi_string(served.url)
        lines.append(f"ATTACH {names.ansi_string(warehouse)} AS {alias} (TYPE iceberg, ENDPOINT {place}, {door});")
    quoted = f"{names.ansi_quote(table.database)}.{names.ansi_quote(table.table)}"
    counts = ", ".join(f"(SELECT count(*) FROM {alias}.{quoted})" for alias in (now, "before"))
    return "\n".join([*lines, f"SELECT {counts};"])


def _pyiceberg(source: ShownSource, served: CatalogAddress, end: str = ".scan().to_arrow()") -> str:
    table, warehouse = source.tables[0], source.batches[0].warehouse
    shown = ', credential="ID:SECRET"' if served.asks else ""
    oauth = f', **{{"oauth2-server-uri": {json.dumps(served.url + "/v1/oauth/tokens")}}}' if served.asks else ""
    name = f"({json.dumps(table.database, ensure_ascii=False)}, {json.dumps(table.table, ensure_ascii=False)})"
    return (
        "from pyiceberg.catalog.rest import RestCatalog\n\n"
        f"catalog = RestCatalog({json.dumps(source.name)}, uri={json.dumps(served.url)},\n"
        f"    warehouse={json.dumps(warehouse)}{shown}{oauth})\n"
        f"table = catalog.load_table({name}){end}"
    )


def _polars(source: ShownSource, served: CatalogAddress) -> str:
    return f"import polars\n{_pyiceberg(source, served, end='')}\nrows = polars.scan_iceberg(table).collect()"


def _spark(source: ShownSource, served: CatalogAddress) -> str:
    table, name = source.tables[0], names.plain_name(source.name)
    prefix = f"--conf spark.sql.catalog.{name}"
    settings = {
        "": "org.apache.iceberg.spark.SparkCatalog", ".type": "rest", ".uri": served.url,
        ".warehouse": source.batches[0].warehouse,
    }  # fmt: skip
    if served.asks:
        settings |= {".credential": "ID:SECRET", ".oauth2-server-uri": f"{served.url}/v1/oauth/tokens"}
    lines = [f"{prefix}{key}={names.shell_quote(value)}" for key, value in settings.items()]
    query = f"SELECT * FROM {name}.{names.spark_quote(table.database)}.{names.spark_quote(table.table)}"
    packages = "spark-sql --packages org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0"
    return " \\\n  ".join([packages, *lines, f"-e {names.shell_quote(query)}"])


def _trino(source: ShownSource, served: CatalogAddress) -> str:
    lines = [
        f"# etc/catalog/{names.plain_name(source.name)}.properties", "connector.name=iceberg",
        "iceberg.catalog.type=rest", f"iceberg.rest-catalog.uri={served.url}",
        f"iceberg.rest-catalog.warehouse={source.name}@newest",
    ]  # fmt: skip
    if served.asks:
        lines += [
            "iceberg.rest-catalog.security=OAUTH2", "iceberg.rest-catalog.oauth2.credential=ID:SECRET",
            f"iceberg.rest-catalog.oauth2.server-uri={served.url}/v1/oauth/tokens",
        ]  # fmt: skip
    return "\n".join(lines)
