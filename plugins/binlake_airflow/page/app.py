"""The app under ``/binlake/`` of Airflow's API server: the page, and its data under ``api/``.

Routes are plain functions: FastAPI runs them in worker threads, so that reading the lake holds up nothing else.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import tzinfo
from pathlib import Path
from typing import Annotated, Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from fastapi import Depends, FastAPI, HTTPException, Path as PathParameter, Query, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import FileResponse, Response
from sqlalchemy.exc import OperationalError

from binlake.config import PipelineConfig
from binlake.errors import BinlakeError, LeaseHeld, UsageError
from binlake.records import watermarks
from binlake.records.evidence import AirflowState
from binlake.records.metrics import CONTENT_TYPE
from binlake.schema.table import TableName
from binlake.store.metadata import metadata_of, now_us
from binlake_airflow.page import (
    actions,
    answers,
    broken_edit,
    events as events_of,
    feeds as feeds_of,
    metrics_text as metrics_of,
    over_time as charts_of,
    replays as replays_of,
    source_actions,
    source_edit,
    source_form,
    tables as tables_of,
    work as work_of,
)
from binlake_airflow.page.access import DAGS, Reader, ReaderDep, SourceDep, may_open, may_read
from binlake_airflow.page.airflow_state import airflow_states
from binlake_airflow.page.bounded_body import BoundedBody
from binlake_airflow.page.refused_fields import FieldsRefused, refused
from binlake_airflow.page.remedies import Answer
from binlake_airflow.sources import pipelines_folder, sources_of

STATIC = Path(__file__).parent / "static"
_PARTS = {
    file.name: {".js": "text/javascript", ".css": "text/css"}[file.suffix]
    for file in STATIC.iterdir()
    if file.suffix != ".html"
}
HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'self'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "Cache-Control": "no-cache",
}

app = FastAPI(
    title="binlake", dependencies=[Depends(may_open)], docs_url=None, redoc_url=None, openapi_url=None
)  # fmt: skip


@app.middleware("http")
async def _with_headers(request: Request, call_next: Callable[[Request], Awaitable[Response]]) -> Response:
    response = await call_next(request)
    response.headers.update(HEADERS)
    return response


app.add_middleware(BoundedBody)
app.add_exception_handler(FieldsRefused, refused)
app.add_exception_handler(RequestValidationError, refused)


@app.exception_handler(BinlakeError)
@app.exception_handler(OperationalError)
def _error_answer(_: Request, error: Exception) -> Answer:
    """Answer an error: 409 if the request can't be fulfilled now, 503 if the lake, or Airflow's database, can't be
    read or written."""
    return Answer(answers.problem(error), 409 if isinstance(error, (UsageError, LeaseHeld)) else 503)


_OF_SOURCE = [Depends(may_read)]


def zone_of(zone: Annotated[str, Query(max_length=64)] = "UTC") -> tzinfo:
    """Return a time zone by its name, such as ``Europe/Berlin``. Raises 422 for one that isn't known."""
    try:
        return ZoneInfo(zone)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise HTTPException(422, f"no time zone has the name {zone!r}") from None


ZoneDep = Annotated[tzinfo, Depends(zone_of)]


@app.get("/")
def page() -> FileResponse:
    """Return the page's HTML."""
    return FileResponse(STATIC / "index.html")


@app.get("/metrics")
def metrics(reader: ReaderDep, by_table: bool = False) -> Response:
    """Return the metrics of the sources that the user may read, in Prometheus' text form. by_table: also of each
    table."""
    return Response(metrics_of.text(reader, by_table=by_table), media_type=CONTENT_TYPE)


@app.get("/{file}")
def part(file: str) -> FileResponse:
    """Return a script, style or image of the page. Raises 404 for other files."""
    if file not in _PARTS:
        raise HTTPException(404, f"the page has no file {file!r}")
    return FileResponse(STATIC / file, media_type=_PARTS[file])


@app.get("/api/sources")
def sources(reader: ReaderDep) -> Answer:
    """Return the sources that the user may read, and broken files for users who may see import errors."""
    files = list(sources_of(pipelines_folder()))
    good = {config.source.name: (file, config) for file, config in files if isinstance(config, PipelineConfig)}
    readable = reader.readable(good)
    airflow = airflow_states(sorted(readable), reader.may_read_logs)
    entries: list[dict[str, Any]] = []
    for name in sorted(readable):
        try:
            entries.append(_source(*good[name], airflow[name]) | {"may": _may(name, reader)})
        except Exception as error:  # an error of one source must not hide the others
            entries.append(
                {
                    "source": name,
                    "file": good[name][0].name,
                    "health": "bad",
                    "error": answers.problem(error),
                    "may": _may(name, reader),
                }
            )
    may_add = reader.may_add()
    if reader.reads_import_errors():
        broken = [(file, error) for file, error in files if not isinstance(error, PipelineConfig)]
        entries += [answers.broken(file, error, may_edit=may_add) for file, error in broken]
    return Answer({"sources": entries, "folder": str(pipelines_folder()), "now_us": now_us(), "may_add": may_add})


def _source(file: Path, config: PipelineConfig, airflow: AirflowState) -> dict[str, Any]:
    return answers.source(file, config, airflow, tables_of.unreadable(config))


@app.get("/api/sources/{source}", dependencies=_OF_SOURCE)
def one_source(source: str, loaded: SourceDep, reader: ReaderDep) -> Answer:
    """Return a source's state, with the actions that the user may do."""
    answer = _source(*loaded, airflow_states([source], reader.may_read_logs)[source])
    return Answer(answer | {"may": _may(source, reader)})


def _may(source: str, reader: Reader) -> dict[str, bool]:
    """Return what the user may do: trigger each DAG, edit (decide about tables and events), and remove the source."""
    triggers: dict[str, bool] = {what: reader.may_trigger(source, what) for what in DAGS}
    edits = reader.may_edit(source)
    return {**triggers, "edit": edits, "remove": edits and reader.may_remove(source)}


@app.get("/api/sources/{source}/tables", dependencies=_OF_SOURCE)
def tables(loaded: SourceDep) -> Answer:
    """Return the state of the source's tables."""
    return Answer(tables_of.tables(loaded[1]))


@app.get("/api/sources/{source}/tables/{table:path}", dependencies=_OF_SOURCE)
def one_table(
    source: str,
    table: str,
    loaded: SourceDep,
    reader: ReaderDep,
    zone: ZoneDep,
    at: Annotated[str | None, Query(max_length=200)] = None,
) -> Answer:
    """Return one table. at: ``FILE:POS`` or a time, for the table's columns then. zone: whose days those are on which
    it was compared.

    Keys of rows are values, so only users who may edit get them.
    """
    answer = tables_of.table(loaded[1], table, at, with_keys=reader.may_edit(source), zone=zone)
    if answer is None:
        raise HTTPException(404, f"the source {loaded[1].source.name} has no table {table!r}")
    return Answer(answer)


@app.get("/api/sources/{source}/differing/{table:path}", dependencies=_OF_SOURCE)
def differing(source: str, table: str, loaded: SourceDep, reader: ReaderDep) -> Answer:
    """Return the rows of a table that differed when it was compared last; their keys for users alone who may edit.
    Raises 404 for a table that isn't known."""
    name = _named(loaded[1], table)
    return Answer({"differing": tables_of.differing(loaded[1], name, with_keys=reader.may_edit(source))})


def _named(config: PipelineConfig, table: str) -> TableName:
    name = watermarks.names(metadata_of(config)).get(table)
    if name is None:
        raise HTTPException(404, f"the source {config.source.name} has no table {table!r}")
    return name


@app.get("/api/sources/{source}/replays", dependencies=_OF_SOURCE)
def replays(loaded: SourceDep) -> Answer:
    """Return the tables that were built once more, the newest first, and how each is queried."""
    return Answer(replays_of.replays(loaded[1]))


@app.get("/api/sources/{source}/feeds", dependencies=_OF_SOURCE)
def feeds(loaded: SourceDep) -> Answer:
    """Return the state of the source's feeds."""
    return Answer(feeds_of.feeds(loaded[1]))


@app.get("/api/sources/{source}/work", dependencies=_OF_SOURCE)
def work(loaded: SourceDep, reader: ReaderDep) -> Answer:
    """Return what works on the source at the moment, and which of its runs the user may cancel."""
    answer = work_of.work(loaded[1])
    for run in answer["runs"]:
        run["may_cancel"] = reader.may_cancel(loaded[1].source.name, run["what"])
    return Answer(answer)


@app.get("/api/sources/{source}/charts", dependencies=_OF_SOURCE)
def charts(
    loaded: SourceDep,
    zone: ZoneDep,
    span: charts_of.Span | None = None,
    width: Annotated[int, Query(ge=200, le=4000)] = 640,
) -> Answer:
    """Return charts over an hour, a day, a week or a month, as SVG; without ``span`` over that which fits what is
    known. width: of each, in pixels."""
    return Answer(charts_of.over_time(loaded[1], span, width, zone))


@app.get("/api/sources/{source}/events", dependencies=_OF_SOURCE)
def events(
    loaded: SourceDep,
    kind: events_of.Kind | None = None,
    before_us: Annotated[int | None, Query(ge=0, lt=2**63)] = None,
    count: Annotated[int, Query(ge=1, le=500)] = 50,
    table: Annotated[str | None, Query(max_length=200)] = None,
) -> Answer:
    """Return all that happened, or what is of one kind, or concerns one table, the newest first. Raises 404 for a
    table that isn't known."""
    name = _named(loaded[1], table) if table else None
    return Answer(events_of.events(loaded[1], kind, before_us, count, name))


@app.get("/api/sources/{source}/runs", dependencies=_OF_SOURCE)
def newest_runs(
    loaded: SourceDep,
    before_us: Annotated[int | None, Query(ge=0, lt=2**63)] = None,
    count: Annotated[int, Query(ge=1, le=500)] = 50,
) -> Answer:
    """Return the newest runs, at most ``count``. before_us: only those before this time, µs since 1970 UTC."""
    return Answer(answers.newest_runs(loaded[1], before_us, count))


@app.get("/api/sources/{source}/runs/{batch}", dependencies=_OF_SOURCE)
def one_run(batch: Annotated[int, PathParameter(ge=0, lt=2**63)], loaded: SourceDep) -> Answer:
    """Return what one batch did. Raises 404 for a batch that isn't known."""
    answer = answers.run(loaded[1], batch)
    if answer is None:
        raise HTTPException(404, f"the source {loaded[1].source.name} has no batch {batch}, or it isn't known any more")
    return Answer(answer)


app.include_router(actions.router)
app.include_router(source_actions.router)
app.include_router(source_edit.router)
app.include_router(broken_edit.router)
app.include_router(source_form.router)
