"""A server that clients have brought to the bounds of its process goes on with what it has promised."""

import resource
import socket
from contextlib import ExitStack
from pathlib import Path

from support.server_process import ServerProcess, client

FILES = 256
CONNECTIONS = 400


class FewFiles(ServerProcess):
    """A server whose process may open few files."""

    def launch(self) -> None:
        super().launch()
        resource.prlimit(self.pid, resource.RLIMIT_NOFILE, (FILES, FILES))


def test_more_connections_than_files_leave_the_store_its_own(tmp_path: Path) -> None:
    settings = {"store.segment_bytes": str(1024 * 1024)}
    with FewFiles(tmp_path / "data", tmp_path / "log", settings) as server, ExitStack() as stack:
        publisher = stack.enter_context(client(server, "publisher"))
        for _ in range(CONNECTIONS):
            stack.enter_context(socket.create_connection(("127.0.0.1", server.port), timeout=60))
        for number in range(40):  # each segment is a new file
            publisher.publish(f"t/{number}", bytes(100_000), qos=1, retain=True)
        assert len(list((tmp_path / "data" / "log").glob("*"))) > 3
        assert "limits.files_reserved" in server.log()
        assert "nothing can be made durable" not in server.log()
