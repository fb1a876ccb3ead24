"""A sink: what is left of a broker when everything is taken out of it.

Owns: the proof that the generator is not the bottleneck. It answers CONNECT and SUBSCRIBE, then reads whole frames of
the benchmark's one size and drops them, or copies them unchanged to every subscriber; QoS 1 is acknowledged.
Never: topics, sessions, parsing. Run as a script: `sink.py PORT`.
"""

import select
import socket
import sys

import numpy as np


class Link:
    __slots__ = ("sock", "subscribed", "tail")

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.subscribed = False
        self.tail = b""


def frames_of(link: Link, data: bytes) -> bytes:
    """The whole frames of what a publisher has sent so far; answers them when they are QoS 1."""
    data = link.tail + data
    size = data[1] + 2 if len(data) > 1 else len(data) + 1
    count = len(data) // size
    frames, link.tail = data[: count * size], data[count * size :]
    if count and frames[0] & 0x06:
        rows = np.frombuffer(frames, dtype=np.uint8).reshape(count, size)
        answer = np.empty((count, 4), dtype=np.uint8)
        answer[:, :2] = (0x40, 2)
        id_at = 4 + int(frames[3])
        answer[:, 2:] = rows[:, id_at : id_at + 2]
        link.sock.sendall(answer.tobytes())
    return frames


def serve(port: int) -> None:
    listener = socket.create_server(("127.0.0.1", port), backlog=1024)
    poller = select.epoll()
    poller.register(listener.fileno(), select.EPOLLIN)
    links: dict[int, Link] = {}
    while True:
        for fd, _ in poller.poll():
            if fd == listener.fileno():
                sock, _ = listener.accept()
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                links[sock.fileno()] = Link(sock)
                poller.register(sock.fileno(), select.EPOLLIN)
                continue
            link = links[fd]
            try:
                data = link.sock.recv(1 << 20)
                take(link, data, links)
            except OSError:
                data = b""
            if not data:
                poller.unregister(fd)
                del links[fd]
                link.sock.close()


def take(link: Link, data: bytes, links: dict[int, Link]) -> None:
    if data[:1] == b"\x10":
        link.sock.sendall(b"\x20\x02\x00\x00")
    elif data[:1] == b"\x82":
        link.subscribed = True
        link.sock.sendall(b"\x90\x03" + data[2:4] + data[-1:])
    elif data[:1] == b"\xe0":
        link.sock.shutdown(socket.SHUT_WR)
    elif data and not link.subscribed:
        frames = frames_of(link, data)
        for reader in links.values():
            if reader.subscribed:
                reader.sock.sendall(frames)


if __name__ == "__main__":
    serve(int(sys.argv[1]))
