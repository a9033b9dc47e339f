"""Two network namespaces of a test's own with a network between them that delays, or drops, every packet.

The network is a thread that carries packets between two TUN devices, so it needs no `tc netem`, which many kernels lack.
"""

from __future__ import annotations

import fcntl
import heapq
import os
import select
import shutil
import struct
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pytest

SERVER, CLIENT = "10.201.0.1", "10.201.0.2"
_TUNSETIFF, _TUN, _NO_INFO = 0x400454CA, 0x0001, 0x1000


class FarNetwork:
    """The namespaces `near` (of clients) and `far` (of servers); `round_trip_s` and `cut` may be changed at any time."""

    def __init__(self, tag: str) -> None:
        self.round_trip_s = 0.0
        self.cut = False
        self.near, self.far = f"ale-n{tag}", f"ale-f{tag}"
        self._ends: list[int] = []
        self._stop, self._stopped = os.pipe()

    def within(self, namespace: str, *command: str) -> list[str]:
        """Return a command that runs in a namespace."""
        return ["ip", "netns", "exec", namespace, *command]

    @contextmanager
    def standing(self) -> Iterator[FarNetwork]:
        with ExitStack() as stack:
            for namespace, address in ((self.near, CLIENT), (self.far, SERVER)):
                _ip("netns", "add", namespace)
                stack.callback(_ip, "netns", "del", namespace)
                device = namespace.replace("ale-", "ale")
                self._ends.append(os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC))
                stack.callback(os.close, self._ends[-1])
                fcntl.ioctl(
                    self._ends[-1], _TUNSETIFF, struct.pack("16sH22x", device.encode(), _TUN | _NO_INFO)
                )
                _ip("link", "set", device, "netns", namespace)
                for words in (
                    f"addr add {address}/24 dev {device}",
                    f"link set {device} up",
                    "link set lo up",
                ):
                    _ip("-n", namespace, *words.split())
            carrier = threading.Thread(target=self._carry, daemon=True)
            carrier.start()
            try:
                yield self
            finally:
                os.close(self._stopped)
                carrier.join()
                os.close(self._stop)

    def _carry(self) -> None:
        near, far = self._ends
        under_way: list[tuple[float, int, int, bytes]] = []
        count = 0
        while True:
            wait_s = max(under_way[0][0] - time.monotonic(), 0.0) if under_way else None
            ready, _, _ = select.select([near, far, self._stop], [], [], wait_s)
            if self._stop in ready:
                return
            for end in ready:
                packet = os.read(end, 1 << 16)
                if not self.cut:
                    count += 1
                    to = far if end == near else near
                    heapq.heappush(under_way, (time.monotonic() + self.round_trip_s / 2, count, to, packet))
            while under_way and under_way[0][0] <= time.monotonic():
                _, _, to, packet = heapq.heappop(under_way)
                if not self.cut:
                    with suppress(OSError):  # a device whose queue is full drops, as a network does
                        os.write(to, packet)


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True)


@contextmanager
def far_network() -> Iterator[FarNetwork]:
    """Yield one, or skip and say what this machine lacks for it."""
    if os.geteuid() != 0:
        pytest.skip("network namespaces need root: far networks are NOT tested")
    if shutil.which("ip") is None:
        pytest.skip("the ip command is absent: far networks are NOT tested. Install iproute2.")
    if not Path("/dev/net/tun").exists():
        pytest.skip("/dev/net/tun is absent: far networks are NOT tested. Load the kernel's module tun.")
    network = FarNetwork(f"{os.getpid():x}")
    with network.standing():
        yield network
