"""Guests whose server died before it had configured them: each ends by itself, whatever it was waiting for."""

from __future__ import annotations

import array
import asyncio
import marshal
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest
from bare_guest import BareGuest

import rock_env
from rock_env.guest import init, protocol
from rock_env.guest_host.link import listen

TOKEN = b"t" * protocol.TOKEN_BYTES
HELLO = protocol.HEADER.pack(protocol.HELLO, 1, len(TOKEN)) + TOKEN
GUEST = "init.main(sys.argv[1:])"
ORDERS = 20
ZYGOTE = "from rock_env.backends.process.zygote import main; main()"


@contextmanager
def program(
    source: str, *arguments: object, first_s: float = 0.3, fds: tuple[int, ...] = ()
) -> Iterator[subprocess.Popen[bytes]]:
    """Run a guest or a zygote whose guests wait `first_s`; killed at the end if need be."""
    source = f"import sys; from rock_env.guest import init; init.FIRST_S = {first_s}; {source}"
    process = subprocess.Popen(
        [sys.executable, "-S", "-c", source, *map(str, arguments)],
        pass_fds=fds,
        env={"PYTHONPATH": str(Path(rock_env.__file__).parents[1])},
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


async def ended(process: subprocess.Popen[bytes]) -> int:
    return await asyncio.to_thread(process.wait, 20)


def test_whoever_looks_for_leftovers_finds_none_after_half_a_minute() -> None:
    assert init.FIRST_S <= 20


@pytest.mark.parametrize("hangs_up", [True, False])
@pytest.mark.parametrize("sent", [b"", HELLO], ids=["silence", "no configuration"])
async def test_a_guest_that_is_never_configured_ends(tmp_path: Path, sent: bytes, hangs_up: bool) -> None:
    path = tmp_path / "guest.sock"
    with listen(path) as listener, socket.socket(socket.AF_UNIX) as server:
        fd = listener.fileno()
        with program(GUEST, "--listen-fd", fd, fds=(fd,)) as process:
            server.connect(str(path))
            server.sendall(sent)
            if hangs_up:
                server.close()
            assert await ended(process) == 0


async def test_a_configured_guest_stays(tmp_path: Path) -> None:
    with listen(tmp_path / "guest.sock") as listener:
        fd = listener.fileno()
        with program(GUEST, "--listen-fd", fd, first_s=3, fds=(fd,)) as process:
            guest = BareGuest(tmp_path, process, TOKEN, 0)  # type: ignore[arg-type]  # it is only asked for its socket
            link = await guest.configured()
            assert (await guest.box(link).exec(["sleep", "3.1"])).ok
            await link.close()
            assert await ended(process) == 0


async def test_a_guest_does_not_wait_for_a_server_that_left_its_fifo(tmp_path: Path) -> None:
    """As in a container that the engine starts for a server that was killed meanwhile."""
    os.mkfifo(tmp_path / "ready")
    path = tmp_path / "guest.sock"
    with program(GUEST, "--listen-path", path) as process:
        assert await ended(process) == 0
    assert path.exists()


class Server:
    """The server's end of a zygote."""

    def __init__(self) -> None:
        self.control, self.theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.theirs.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1)  # a few unread messages fill it

    async def prepare(self) -> None:
        self.theirs.close()
        plan = {"op": "prepare", "request": 0, "fenced": False, "forget": [], "cgroups": {}, "preload": []}
        self.control.sendall(marshal.dumps(plan, 2))
        assert marshal.loads(await asyncio.to_thread(self.control.recv, 1 << 16)) == ("ready", 0, False)

    def order(self, folder: Path) -> None:
        """Order boxes, and never read what becomes of them."""
        for number in range(1, ORDERS + 1):
            path = folder / f"box-{number}"
            path.mkdir()
            box = {"op": "box", "request": number, "folder": str(path), "probe": False, "copied": ""}
            with listen(path / "guest.sock") as listener:
                rights = array.array("i", [listener.fileno()])
                message = marshal.dumps({**box, "workdir": "/workspace"}, 2)
                self.control.sendmsg([message], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)])


def births(folder: Path) -> list[Path]:
    """Return what the boxes that were ever made have recorded."""
    return list(folder.glob("box-*/process"))


async def test_a_zygote_whose_server_dies_amid_a_birth_ends_and_so_do_its_boxes(tmp_path: Path) -> None:
    server = Server()
    fd = server.theirs.fileno()
    with program(ZYGOTE, fd, fds=(fd,)) as process:
        await server.prepare()
        server.order(tmp_path)
        born: list[psutil.Process] = []
        looks = 0
        while looks < 20:  # until it waits for its server to read what it said of the last birth
            await asyncio.sleep(0.02)
            now = psutil.Process(process.pid).children()
            looks = looks + 1 if now and now == born else 0
            born = now
        assert len(births(tmp_path)) < ORDERS, "it is stuck amid its orders"
        server.control.close()
        assert await ended(process) == 0
        _, left = await asyncio.to_thread(psutil.wait_procs, born, timeout=20)
        assert not left


async def test_a_zygote_makes_no_boxes_for_a_server_that_is_gone(tmp_path: Path) -> None:
    server = Server()
    fd = server.theirs.fileno()
    with program(ZYGOTE, fd, fds=(fd,)) as process:
        await server.prepare()
        process.send_signal(signal.SIGSTOP)
        await asyncio.to_thread(os.waitid, os.P_PID, process.pid, os.WSTOPPED)
        server.order(tmp_path)
        server.control.close()
        process.send_signal(signal.SIGCONT)
        assert await ended(process) == 0
    assert not births(tmp_path)
