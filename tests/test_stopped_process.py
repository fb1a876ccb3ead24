"""A server that was stopped for a while, as a virtual machine is: it hears its clients before it ends any of them."""

import os
import signal
import time
from pathlib import Path

from support.server_process import ServerProcess
from support.sn_client import V12, SnClient
from support.wire import CONNACK, PINGREQ, PINGRESP, Wire, connect, packet

CLIENTS = 100  # more than one look at the sockets finds
KEEP_ALIVE_S = 4
STOPPED_S = 6.5  # longer than one and a half times the keep alive, and than the time for a CONNECT


def test_clients_that_sent_while_the_server_was_stopped_stay_and_the_silent_one_is_ended(tmp_path: Path) -> None:
    settings = {"sn.port": "0", "limits.connect_timeout_s": "6", "store.memory": "true"}
    with ServerProcess(tmp_path / "data", tmp_path / "server.log", settings) as server:
        assert server.process is not None
        address = ("127.0.0.1", server.port)
        silent, late, *clients = [Wire(address) for _ in range(CLIENTS)]
        sensor = SnClient(V12, ("127.0.0.1", server.sn_port), "sensor")
        for number, client in enumerate([silent, *clients]):
            client.send(connect(f"c{number}", keep_alive=KEEP_ALIVE_S))
        for client in [silent, *clients]:
            client.expect(CONNACK)
        assert sensor.connect(keep_alive=KEEP_ALIVE_S).reason == 0
        os.kill(server.process.pid, signal.SIGSTOP)
        try:
            for client in clients:
                client.send(packet(PINGREQ, 0))
            sensor.send("PINGREQ")
            late.send(connect("late"))
            time.sleep(STOPPED_S)
        finally:
            os.kill(server.process.pid, signal.SIGCONT)
        for client in clients:
            client.expect(PINGRESP)
        sensor.expect("PINGRESP")
        late.expect(CONNACK)
        silent.assert_closed()
        for client in [silent, late, *clients]:
            client.close()
        sensor.socket.close()
