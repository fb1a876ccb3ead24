"""SQL: a query over the history of the server, in a process of its own that runs `ember sql`.

Owns: the bounds of a query: time, memory, rows, bytes, and how many run at a time. The process cannot stall the event
loop; it ends when the time is over, or the client that has asked is gone. If the machine runs out of memory, the system
ends it before the server.
"""

import asyncio
import os
import resource
import sys
import time
from asyncio.subprocess import PIPE, Process
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any, Final

from aiohttp import web
from pydantic import BeforeValidator, Field

from embermq.http.connection import connection_of
from embermq.http.fields import Model, Nothing, json_text, whole_number
from embermq.http.operation import OPERATOR, Answer, Call, Operation
from embermq.http.paging import json_response
from embermq.http.refusal import HttpRefusal
from embermq.http.service import QUERIES_MAX, Service
from embermq.lake.errors import what_is_missing

MEMORY: Final = "512MB"
"""How much memory DuckDB may use for one query."""
PROCESS_BYTES_MAX: Final = 1536 * 1024 * 1024 + (os.cpu_count() or 1) * 16 * 1024 * 1024
"""How much its process may allocate (RLIMIT_DATA): that of DuckDB, a row as Python and JSON, and stacks."""
TIMEOUT_MAX_S: Final = 120
ROWS_MAX: Final = 10_000
BYTES_MAX: Final = 16 * 1024 * 1024
"""Of the rows, as JSON; what comes beyond is cut."""
NICENESS: Final = 10
"""The query gets the processor when the server does not need it; the start of its process is as urgent as a request."""


class SqlBody(Model):
    sql: Annotated[str, Field(min_length=1, max_length=100_000, description="A query, in the SQL of DuckDB.")]
    rows_max: Annotated[
        int,
        BeforeValidator(whole_number),
        Field(ge=1, le=ROWS_MAX, json_schema_extra={"minimum": 1, "maximum": ROWS_MAX}),
    ] = 1_000
    timeout_s: Annotated[
        int,
        BeforeValidator(whole_number),
        Field(ge=1, le=TIMEOUT_MAX_S, json_schema_extra={"minimum": 1, "maximum": TIMEOUT_MAX_S}),
    ] = 30


class SqlAnswer(Model):
    """The rows, each an object with the columns in their order. `is_cut`: there are more."""

    rows: list[dict[str, Any]]
    is_cut: bool
    seconds: float


async def query_sql(call: Call[Nothing, SqlBody]) -> Answer:
    service = call.service
    if service.log_directory is None:
        raise HttpRefusal(409, "a store in memory keeps no log")
    missing = what_is_missing()
    if missing is not None:
        raise HttpRefusal(409, missing)
    if service.queries.locked():
        raise HttpRefusal(503, f"{QUERIES_MAX} queries are running already, try again", {"Retry-After": "2"})
    connection_of(call.request).end_with_client()  # it changes nothing
    begun_s = time.monotonic()
    outcome = "cancelled"
    async with service.queries:
        try:
            rows, is_cut = await _rows(service, call.body)
            outcome = f"{len(rows)} rows"
        except HttpRefusal as refusal:
            outcome = str(refusal)
            raise
        finally:
            call.audit("query", call.body.sql[:200], outcome)
    return _answer(rows, is_cut, time.monotonic() - begun_s)


def _answer(rows: list[bytes], is_cut: bool, seconds: float) -> web.Response:
    """The rows are JSON already."""
    text = b",".join(rows).decode()
    return json_response(f'{{"rows":[{text}],"is_cut":{json_text(is_cut)},"seconds":{seconds:.3f}}}')


async def _rows(service: Service, body: SqlBody) -> tuple[list[bytes], bool]:
    """The rows as lines, and whether there are more."""
    process = await _begin(service)
    try:
        async with asyncio.timeout(body.timeout_s):
            assert process.stdin is not None and process.stderr is not None
            errors = asyncio.ensure_future(process.stderr.read())
            try:
                with suppress(ConnectionError):  # it has ended before it has read the query
                    process.stdin.write(body.sql.encode())
                    await process.stdin.drain()
                process.stdin.close()
                rows, is_cut = await _lines(process, body.rows_max)
                if not is_cut and await process.wait():
                    raise HttpRefusal(422, _sentence(await errors, process.returncode))
                return rows, is_cut
            finally:
                errors.cancel()
    except TimeoutError:
        raise HttpRefusal(422, f"the query takes longer than timeout_s, {body.timeout_s} s") from None
    finally:
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()


async def _begin(service: Service) -> Process:
    assert service.log_directory is not None
    command = [sys.executable, "-m", "embermq", "sql", "-", "--json", "--memory", MEMORY, "--nice", str(NICENESS)]
    command += ["--data", str(service.log_directory.parent)]
    if service.lake is not None:
        command += ["--lake", str(service.lake)]
    archive = service.settings.get("store", {}).get("archive", "")
    environment = os.environ | {"EMBERMQ_STORE__ARCHIVE": archive}
    process = await asyncio.create_subprocess_exec(
        *command, stdin=PIPE, stdout=PIPE, stderr=PIPE, limit=BYTES_MAX, env=environment
    )
    if sys.platform == "linux":
        with suppress(OSError):
            resource.prlimit(process.pid, resource.RLIMIT_DATA, (PROCESS_BYTES_MAX, PROCESS_BYTES_MAX))
            Path(f"/proc/{process.pid}/oom_score_adj").write_text("1000")
    return process


async def _lines(process: Process, rows_max: int) -> tuple[list[bytes], bool]:
    assert process.stdout is not None
    rows: list[bytes] = []
    size_bytes = 0
    while True:
        try:
            line = await process.stdout.readline()
        except ValueError:  # a row that is larger than all rows may be
            return rows, True
        if not line:
            return rows, False
        size_bytes += len(line)
        if len(rows) == rows_max or size_bytes > BYTES_MAX:
            return rows, True
        rows.append(line.rstrip(b"\n"))


def _sentence(errors: bytes, code: int | None) -> str:
    """The one sentence of the command."""
    for line in reversed(errors.decode(errors="replace").splitlines()):
        if line.startswith(("ember: Out of Memory", "MemoryError")):
            return f"the query needs more memory than {MEMORY}"
        if line.startswith("ember: "):
            return line.removeprefix("ember: ")
    if code is not None and code < 0:
        return "the query was ended by the system, which happens if it needs much more memory than it may use"
    return "the query has failed"


OPERATIONS: Final = (
    Operation(
        method="POST",
        path="/api/v1/sql",
        role=OPERATOR,
        summary="The rows of a query in SQL over messages, retained messages, clients and the lake.",
        handle=query_sql,
        query=Nothing,
        body=SqlBody,
        answer=SqlAnswer,
        statuses=(409, 422),
    ),
)
