"""A lake at a URL whose store refuses: one sentence, whatever form the store's answer has."""

import subprocess
import sys
from collections.abc import Iterator

import pytest

from embermq.lake.stored_files import plain
from support.ember_command import ember, sentence

# In a process of its own: delta-rs keeps the interpreter's lock while it waits.
STORE = """
from http.server import BaseHTTPRequestHandler, HTTPServer

XML = (
    b'<?xml version="1.0" encoding="UTF-8"?>\\n<Error><Code>NoSuchBucket</Code><Message>The specified bucket does not '
    b'exist</Message><BucketName>none</BucketName></Error>'
)

class NoBucket(BaseHTTPRequestHandler):
    def do_HEAD(self):
        self.send_response(404)
        self.send_header("Content-Length", str(len(XML)))
        self.end_headers()

    def do_GET(self):
        self.do_HEAD()
        self.wfile.write(XML)

    def log_message(self, *_):
        pass

server = HTTPServer(("127.0.0.1", 0), NoBucket)
print(server.server_port, flush=True)
server.serve_forever()
"""


@pytest.fixture
def store() -> Iterator[dict[str, str]]:
    """The environment of a command that reaches a store without buckets."""
    with subprocess.Popen([sys.executable, "-c", STORE], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        port = process.stdout.readline().strip()
        keys = {"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b", "AWS_REGION": "us-east-1"}
        yield {**keys, "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}", "AWS_ALLOW_HTTP": "true"}
        process.kill()


@pytest.mark.parametrize("command", [("status",), ("query", "select 1"), ("as-of", "now")])
def test_a_missing_bucket_is_one_sentence(store: dict[str, str], command: tuple[str, ...]) -> None:
    said = sentence(ember("pipeline", *command, "--lake", "s3a://none/lake", environment=store))
    assert said.startswith(
        "s3a://none/lake cannot be read without Spark: The specified bucket does not exist (NoSuchBu"
    )
    assert "<" not in said


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a \x1b[31mplain\x1b[0m\n  text", "a plain text"),
        ("404: <Error><Message>a &amp; b</Message></Error>", "a & b"),
        ("refused - <!DOCTYPE html><html><body>Proxy</body></html>", "refused"),
    ],
)
def test_the_text_of_a_store(text: str, shown: str) -> None:
    assert plain(text) == shown
