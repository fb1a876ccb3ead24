"""Commands of `ember` run in this process, which is quicker than one of their own, and a server for them to reach."""

import io
import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

from embermq import Broker
from embermq.cli import main
from support.wire import Wire


class Done(NamedTuple):
    """What a command has printed, and its exit code."""

    code: int
    printed: bytes
    errors: str

    @property
    def text(self) -> str:
        return self.printed.decode()

    @property
    def lines(self) -> list[str]:
        return self.text.splitlines()


def ember(*arguments: str | Path, stdin: bytes = b"", environment: dict[str, str] | None = None) -> Done:
    """Run a command to its end."""
    printed, errors = io.BytesIO(), io.BytesIO()
    clean = {name: value for name, value in os.environ.items() if not name.startswith("EMBERMQ_")}
    with (
        patch.dict(os.environ, clean | (environment or {}), clear=True),
        patch.object(sys, "argv", ["ember", *map(str, arguments)]),
        patch.object(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin))),
        patch.object(sys, "stdout", io.TextIOWrapper(printed, encoding="utf-8", write_through=True)),
        patch.object(sys, "stderr", io.TextIOWrapper(errors, encoding="utf-8", write_through=True)),
    ):
        try:
            main()
            code = 0
        except SystemExit as ended:
            code = ended.code if isinstance(ended.code, int) else 0 if ended.code is None else 1
        sys.stdout.flush()
        sys.stderr.flush()
        return Done(code, printed.getvalue(), errors.getvalue().decode())


def sentence(done: Done) -> str:
    """The one sentence of a command that could not do what it was asked."""
    assert done.code == 2, done
    assert done.printed == b"", done
    assert done.errors.startswith("ember: ") and done.errors.count("\n") == 1, done.errors
    return done.errors.removeprefix("ember: ").rstrip("\n")


@contextmanager
def server(data: Path, **options: Any) -> Iterator[Broker]:
    """A server on a directory, as far as others can see."""
    with Broker.in_thread(data=data, **options) as broker:
        yield broker


def wire(broker: Broker, client_id: str, **options: Any) -> Wire:
    """A client that has connected."""
    assert broker.port is not None
    client = Wire(("127.0.0.1", broker.port))
    assert client.connect(client_id, **options).return_code == 0
    return client


class DataPlace:
    """A data directory and, if it runs, its server."""

    def __init__(self, data: Path, broker: Broker | None) -> None:
        self.data = data
        self.broker = broker

    def retained(self, *arguments: str | Path, stdin: bytes = b"") -> Done:
        return ember("retained", *arguments, "--data", self.data, stdin=stdin)

    def set(self, topic_name: str, payload: bytes, *options: str) -> None:
        done = self.retained("set", topic_name, "--stdin", *options, stdin=payload)
        assert (done.code, done.printed, done.errors) == (0, b"", "")

    def topics(self, *arguments: str) -> dict[str, str]:
        """What `ls --json` says: topic and payload, in its order."""
        done = self.retained("ls", *arguments, "--json")
        assert done.code == 0, done
        found = [json.loads(line) for line in done.lines]
        return {each["topic"]: each.get("payload", each.get("payload_base64")) for each in found}
