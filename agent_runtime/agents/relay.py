"""The far end of a tunnel: listens on the sandbox's loopback and carries connections over its standard input and output.

Sent into a sandbox as text by `tunnel` and run there by whatever Python the sandbox has, so it imports nothing of ours and
no extension module that a sandbox's guest does not bring. A frame is kind (1 byte), connection (4) and length (4), big
endian, then that many bytes. Nobody sends more of a connection than the other side has given credit for. It has one thread
and ends with its input.
"""

from __future__ import annotations

import os
import select
from _socket import AF_INET, SHUT_WR, SO_REUSEADDR, SO_REUSEPORT, SOCK_STREAM, SOL_SOCKET, socket
from _struct import Struct

LISTENS, OPEN, DATA, END, RESET, CREDIT, RETIRE = range(1, 8)
"""LISTENS carries the port; CREDIT, as the rest, in its payload: how many more bytes may come. RETIRE: another relay listens
at the port by now, and this one ends with its last connection."""
HEADER = Struct("!BII")
COUNT = Struct("!I")
WINDOW_BYTES = 1 << 20
"""Of each connection and direction, under way at most."""
BLOCK_BYTES = 1 << 16
MAX_CONNECTIONS = 128


class Relay:
    """The connections of one sandbox."""

    def __init__(self, port: int) -> None:
        self.listener = socket(AF_INET, SOCK_STREAM)
        self.listener.setsockopt(SOL_SOCKET, SO_REUSEADDR, 1)
        self.listener.setsockopt(SOL_SOCKET, SO_REUSEPORT, 1)
        self.listener.bind(("127.0.0.1", port))
        self.listener.listen(MAX_CONNECTIONS)
        self.poll = select.poll()
        self.poll.register(0, select.POLLIN)
        self.poll.register(self.listener.fileno(), select.POLLIN)
        self.ends: dict[int, End] = {}
        self.by_fd: dict[int, End] = {}
        self.made = 0
        self.retired = False
        self.input = bytearray()
        self.send(LISTENS, 0, COUNT.pack(self.listener.getsockname()[1]))

    def send(self, kind: int, connection: int, payload: bytes = b"") -> None:
        """Write one frame; the host always reads."""
        left = memoryview(HEADER.pack(kind, connection, len(payload)) + payload)
        while left:
            left = left[os.write(1, left) :]

    def run(self) -> None:
        """Carry bytes until the host hangs up, or has retired this relay and its last connection has ended."""
        while self.ends or not self.retired:
            for fd, events in self.poll.poll():
                if fd == 0:
                    data = os.read(0, 4 * BLOCK_BYTES)
                    if not data:
                        return
                    self.take(data)
                elif fd == self.listener.fileno():
                    self.accept()
                elif (end := self.by_fd.get(fd)) is not None:  # else closed by an event before it
                    end.ready(events)

    def accept(self) -> None:
        """Take a connection of the agent's; beyond the most it waits in the kernel's queue."""
        fd, _ = self.listener._accept()  # type: ignore[attr-defined]  # what `socket.accept` wraps
        self.made += 1
        end = self.ends[self.made] = End(self, self.made, socket(fileno=fd))
        self.by_fd[fd] = end
        self.send(OPEN, self.made)
        end.watch()
        if len(self.ends) == MAX_CONNECTIONS and not self.retired:
            self.poll.unregister(self.listener.fileno())

    def retire(self) -> None:
        """Listen no more; who waits in the kernel's queue is taken first."""
        if self.retired:
            return
        if len(self.ends) < MAX_CONNECTIONS:
            self.poll.unregister(self.listener.fileno())
        self.retired = True
        self.listener.setblocking(False)
        try:
            while True:
                self.accept()
        except BlockingIOError:
            self.listener.close()

    def closed(self, end: End) -> None:
        """Forget a connection."""
        if len(self.ends) == MAX_CONNECTIONS and not self.retired:
            self.poll.register(self.listener.fileno(), select.POLLIN)
        del self.ends[end.number]
        del self.by_fd[end.fd]

    def take(self, data: bytes) -> None:
        """Read the host's frames."""
        self.input += data
        while len(self.input) >= HEADER.size:
            kind, number, length = HEADER.unpack_from(self.input)
            if len(self.input) < HEADER.size + length:
                return
            payload = bytes(self.input[HEADER.size : HEADER.size + length])
            del self.input[: HEADER.size + length]
            if kind == RETIRE:
                self.retire()
            end = self.ends.get(number)
            if end is not None:
                end.frame(kind, payload)


class End:
    """One connection of the agent's."""

    def __init__(self, relay: Relay, number: int, sock: socket) -> None:
        self.relay, self.number, self.sock, self.fd = relay, number, sock, sock.fileno()
        sock.setblocking(False)
        self.unsent = bytearray()
        self.room = WINDOW_BYTES
        self.open = True
        self.read_ended = self.write_ended = False
        self.watched = False

    def frame(self, kind: int, payload: bytes) -> None:
        if kind == DATA:
            self.unsent += payload
            self.flush()
        elif kind == CREDIT:
            self.room += COUNT.unpack(payload)[0]
        elif kind == END:
            self.write_ended = True
            self.flush()
        elif kind == RESET:
            self.close()
        self.watch()

    def ready(self, events: int) -> None:
        if events & select.POLLOUT:
            self.flush()
        if self.open and events & ~select.POLLOUT:
            self.read()
        self.watch()

    def read(self) -> None:
        try:
            data = self.sock.recv(min(self.room, BLOCK_BYTES)) if self.room and not self.read_ended else None
        except BlockingIOError:
            return
        except OSError:
            self.reset()
            return
        if data:
            self.room -= len(data)
            self.relay.send(DATA, self.number, data)
        elif data is None:
            self.reset()  # nothing to be read, and yet an event: it was broken off
        else:
            self.read_ended = True
            self.relay.send(END, self.number)

    def flush(self) -> None:
        try:
            while self.unsent:
                count = self.sock.send(self.unsent[: 4 * BLOCK_BYTES])
                del self.unsent[:count]
                self.relay.send(CREDIT, self.number, COUNT.pack(count))
            if self.write_ended:
                self.sock.shutdown(SHUT_WR)
        except BlockingIOError:
            return
        except OSError:
            self.reset()

    def watch(self) -> None:
        """Wait for what can be done now; close what has ended both ways."""
        if not self.open:
            return
        if self.read_ended and self.write_ended and not self.unsent:
            self.close()
            return
        reads = select.POLLIN if self.room and not self.read_ended else 0
        events = reads | (select.POLLOUT if self.unsent else 0)
        if events:
            self.relay.poll.register(self.fd, events)
        elif self.watched:
            self.relay.poll.unregister(self.fd)
        self.watched = bool(events)

    def reset(self) -> None:
        if self.open:
            self.relay.send(RESET, self.number)
            self.close()

    def close(self) -> None:
        if self.open:
            self.open = False
            if self.watched:
                self.relay.poll.unregister(self.fd)
            self.relay.closed(self)
            self.sock.close()


if __name__ == "__main__":
    import sys

    Relay(int(sys.argv[1])).run()
