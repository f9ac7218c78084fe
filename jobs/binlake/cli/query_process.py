"""A process that runs the prompt's queries. Ctrl-C ends it, and with it the query, at once: the engine itself can't be
stopped. Another one is begun for the next query.

It is asked by a line of JSON, ``{"batch", "sql"}``, and answers by parts. Each is a line of JSON, which says what the
part is and how many bytes follow: the schema, a batch of rows, the end, or an error.
"""

from __future__ import annotations

import json
import os
import queue
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import suppress
from typing import IO, Any

import pyarrow as pa

from binlake.errors import BinlakeError, LakeError, UsageError
from binlake.lake.sql_session import QueryRows, SqlSession

_SCHEMA, _ROWS, _END, _ERROR = "schema", "rows", "end", "error"


class QueryProcess:
    """The process, as the prompt has it. It is begun before it is asked, as it takes a while to start."""

    def __init__(self, config: str) -> None:
        """config: the source's YAML."""
        self._config = config
        self._is_busy = False
        self._begin()

    def _begin(self) -> None:
        self._is_busy = False
        self._folder = tempfile.TemporaryDirectory(prefix="binlake-sql-", ignore_cleanup_errors=True)
        self._process = subprocess.Popen(
            [sys.executable, "-m", "binlake.cli.query_process", self._config],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "TMPDIR": self._folder.name},  # a process that is killed removes nothing
            start_new_session=True,  # Ctrl-C is the prompt's to hear
        )

    def execute(self, batch: int, sql: str) -> QueryRows:
        """Run a query at a batch. Raises UsageError, LakeError; so does reading its rows."""
        self.stop()  # of a query before, the rows may not have been read to their end
        if self._process.poll() is not None:
            self.close()
            self._begin()
        self._is_busy = True
        asked, _ = self._pipes
        asked.write(json.dumps({"batch": batch, "sql": sql}).encode() + b"\n")
        asked.flush()
        schema = self._part()
        assert isinstance(schema, pa.Schema)
        return QueryRows(schema, self._rows())

    def stop(self) -> None:
        """End the query that runs, if one does."""
        if self._is_busy:
            self.close()
            self._begin()

    def close(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.wait()
        for pipe in self._pipes:
            with suppress(BrokenPipeError):
                pipe.close()
        self._folder.cleanup()

    @property
    def _pipes(self) -> tuple[IO[bytes], IO[bytes]]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        return self._process.stdin, self._process.stdout

    def _rows(self) -> Iterator[pa.RecordBatch]:
        while (rows := self._part()) is not None:
            yield rows

    def _part(self) -> pa.Schema | pa.RecordBatch | None:
        _, answered = self._pipes
        line = answered.readline()
        if not line:
            raise LakeError(
                f"the process of the query ended with {self._process.wait()}",
                remedy="ask again; if it was out of memory, ask for fewer rows or columns",
            )
        head = json.loads(line)
        if head["part"] in (_END, _ERROR):
            self._is_busy = False
        if head["part"] == _ERROR:
            kind = UsageError if head["exit_code"] == UsageError.exit_code else LakeError
            raise kind(head["message"], remedy=head["remedy"])
        payload = pa.py_buffer(answered.read(head["bytes"]))
        if head["part"] == _SCHEMA:
            return pa.ipc.read_schema(payload)
        return pa.ipc.open_stream(payload).read_next_batch() if head["part"] == _ROWS else None


class _Answers:
    """The answers to queries, in the process itself."""

    def __init__(self, config: str, out: IO[bytes]) -> None:
        self._config, self._out = config, out
        self._sessions: dict[int, SqlSession] = {}

    def answer(self, batch: int, sql: str) -> None:
        """Run a query, and write its rows or its error."""
        try:
            rows = self._session(batch).execute(sql)
            self._write(_SCHEMA, rows.schema.serialize())
            for part in rows.batches:
                self._write(_ROWS, _stream_of(part))
            self._write(_END)
        except BinlakeError as error:
            self._write(_ERROR, exit_code=error.exit_code, message=error.message, remedy=error.remedy)

    def _session(self, batch: int) -> SqlSession:
        if batch not in self._sessions:
            from binlake.lake.opened_lake import open_lake

            self._sessions[batch] = open_lake(self._config).at(batch=batch).session()
        return self._sessions[batch]

    def _write(self, part: str, payload: pa.Buffer | None = None, **said: Any) -> None:
        size = 0 if payload is None else payload.size
        self._out.write(json.dumps({"part": part, "bytes": size, **said}).encode() + b"\n")
        if payload is not None:
            self._out.write(payload)
        self._out.flush()


def _stream_of(rows: pa.RecordBatch) -> pa.Buffer:
    """Return rows as a stream of Arrow's, which holds their dictionaries, too."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as stream:
        stream.write_batch(rows)
    return sink.getvalue()


def main() -> None:
    """Answer queries until nobody asks any more; a query that runs then is ended."""
    out = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # whatever a library prints is no answer
    asked: queue.Queue[str] = queue.Queue()

    def listen() -> None:
        for line in sys.stdin:
            asked.put(line)
        os._exit(0)

    threading.Thread(target=listen, name="asked", daemon=True).start()
    answers = _Answers(sys.argv[1], out)
    while True:
        answers.answer(**json.loads(asked.get()))


if __name__ == "__main__":
    main()
