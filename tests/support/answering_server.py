"""A real HTTP server on a free port of this machine, whose answers a test decides."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Asked:
    """One request: its path and body, and how to answer it."""

    def __init__(self, handler: BaseHTTPRequestHandler, body: bytes) -> None:
        self._handler = handler
        self.path = handler.path
        self.body = body

    def answer(self, status: int, body: bytes = b"", **headers: str) -> None:
        self._handler.send_response(status)
        for name, value in headers.items():
            self._handler.send_header(name, value)
        self._handler.send_header("Content-Length", str(len(body)))
        self._handler.end_headers()
        self._handler.wfile.write(body)

    def write(self, data: bytes) -> None:
        """Bytes as they are, in place of an answer."""
        self._handler.wfile.write(data)
        self._handler.wfile.flush()


class AnsweringServer:
    """Counts what it is asked; `answer` may be replaced while it runs. `released` ends answers that hang."""

    def __init__(self, answer: Callable[[Asked], None]) -> None:
        self.answer = answer
        self.asked: list[bytes] = []
        self.released = threading.Event()
        self.arrived = threading.Semaphore(0)
        self.url = ""

    def hang(self, _: Asked) -> None:
        """An answer that does not come before the test ends."""
        self.released.wait(60)

    def take(self, handler: BaseHTTPRequestHandler) -> None:
        body = handler.rfile.read(int(handler.headers.get("Content-Length", 0)))
        self.asked.append(body)
        self.arrived.release()
        try:
            self.answer(Asked(handler, body))
        except (BrokenPipeError, ConnectionResetError):  # nobody waits for it any more
            handler.close_connection = True


@contextmanager
def answering(answer: Callable[[Asked], None]) -> Iterator[AnsweringServer]:
    """Run a server."""
    server = AnsweringServer(answer)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            server.take(self)

        def do_POST(self) -> None:
            server.take(self)

        def log_message(self, format: str, *args: object) -> None:
            return

    listening = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    listening.daemon_threads = True
    server.url = f"http://127.0.0.1:{listening.server_port}/asked"
    thread = threading.Thread(target=listening.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield server
    finally:
        server.released.set()
        listening.shutdown()
        thread.join()
        listening.server_close()
