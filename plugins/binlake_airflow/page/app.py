"""The app under ``/binlake/`` of Airflow's API server: the page, and its data under ``api/``.

Routes are plain functions: FastAPI runs them in worker threads, so that reading the lake holds up nothing else.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Annotated, Any

from fastapi import Depends, FastAPI, HTTPException, Query, Request
from fastapi import Path as PathParameter
from fastapi.responses import FileResponse, JSONResponse, Response

from binlake.config import PipelineConfig
from binlake.errors import BinlakeError
from binlake.state.metadata import now_us
from binlake_airflow.page import answers
from binlake_airflow.page.access import ReaderDep, may_open, may_read
from binlake_airflow.sources import pipelines_folder, sources_of

STATIC = Path(__file__).parent / "static"
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


@app.exception_handler(BinlakeError)
def _told(_: Request, error: Exception) -> JSONResponse:
    return JSONResponse(answers.problem(error), 503)


def _source(source: str, reader: ReaderDep) -> tuple[Path, PipelineConfig]:
    """Raises 404, and 409 where the file that should be this source is broken."""
    for file, config in sources_of(pipelines_folder()):
        if isinstance(config, PipelineConfig):
            if config.source.name == source:
                return file, config
        elif file.stem == source:
            told = str(config) if reader.reads_import_errors() else f"the file {file.name} is broken"
            raise HTTPException(409, told)
    raise HTTPException(404, f"there is no source {source!r} among the YAML files in {pipelines_folder()}")


_Source = Annotated[tuple[Path, PipelineConfig], Depends(_source)]
_OF_SOURCE = [Depends(may_read)]


@app.get("/")
def page() -> FileResponse:
    return FileResponse(STATIC / "index.html")


@app.get("/page.js")
def script() -> FileResponse:
    return FileResponse(STATIC / "page.js", media_type="text/javascript")


@app.get("/theme.js")
def theme() -> FileResponse:
    return FileResponse(STATIC / "theme.js", media_type="text/javascript")


@app.get("/page.css")
def style() -> FileResponse:
    return FileResponse(STATIC / "page.css", media_type="text/css")


@app.get("/api/sources")
def sources(reader: ReaderDep) -> JSONResponse:
    """Those that the user may read, and files that are none yet."""
    files = list(sources_of(pipelines_folder()))
    good = {config.source.name: (file, config) for file, config in files if isinstance(config, PipelineConfig)}
    readable = reader.readable(good)
    dags = answers.dag_states(sorted(readable))
    told: list[dict[str, Any]] = []
    for name in sorted(readable):
        try:
            told.append(answers.source(*good[name], dags[name]))
        except Exception as error:  # one source's lake hides no other's
            told.append({"source": name, "file": good[name][0].name, "health": "bad", "error": answers.problem(error)})
    if reader.reads_import_errors():
        told += [answers.broken(file, config) for file, config in files if not isinstance(config, PipelineConfig)]
    return JSONResponse({"sources": told, "folder": str(pipelines_folder()), "now_us": now_us()})


@app.get("/api/sources/{source}", dependencies=_OF_SOURCE)
def one_source(source: str, found: _Source) -> JSONResponse:
    return JSONResponse(answers.source(*found, answers.dag_states([source])[source]))


@app.get("/api/sources/{source}/tables", dependencies=_OF_SOURCE)
def tables(found: _Source) -> JSONResponse:
    return JSONResponse(answers.tables(found[1]))


@app.get("/api/sources/{source}/tables/{table:path}", dependencies=_OF_SOURCE)
def one_table(table: str, found: _Source) -> JSONResponse:
    told = answers.table(found[1], table)
    if told is None:
        raise HTTPException(404, f"the source {found[1].source.name} has no table {table!r}")
    return JSONResponse(told)


@app.get("/api/sources/{source}/runs", dependencies=_OF_SOURCE)
def newest_runs(
    found: _Source,
    before_us: Annotated[int | None, Query(ge=0, lt=2**63)] = None,
    count: Annotated[int, Query(ge=1, le=500)] = 50,
) -> JSONResponse:
    return JSONResponse(answers.newest_runs(found[1], before_us, count))


@app.get("/api/sources/{source}/runs/{batch}", dependencies=_OF_SOURCE)
def one_run(batch: Annotated[int, PathParameter(ge=0, lt=2**63)], found: _Source) -> JSONResponse:
    told = answers.run(found[1], batch)
    if told is None:
        raise HTTPException(404, f"the source {found[1].source.name} has no batch {batch}, or it is known no more")
    return JSONResponse(told)
