"""A guest without a backend: its process, started as a backend would, and links to it."""

from __future__ import annotations

import asyncio
import resource
import secrets
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from rock_env.guest_host.box import GuestBox
from rock_env.guest_host.code import lay_out_guest
from rock_env.guest_host.link import GuestLink, listen


class BareGuest:
    """One guest process and how to reach it."""

    def __init__(self, folder: Path, process: asyncio.subprocess.Process, token: bytes, port: int) -> None:
        self.folder = folder
        self.process = process
        self.token = token
        self.path = folder / "guest.sock"
        self.port = port
        """On loopback; 0: it listens at `path`."""

    async def connect(self, token: bytes | None = None) -> GuestLink:
        shown = self.token if token is None else token
        if self.port:
            return await GuestLink.reach("127.0.0.1", self.port, token=shown)
        return await GuestLink.connect(self.path, token=shown)

    def stranger(self) -> socket.socket:
        """Connect without a word."""
        if self.port:
            return socket.create_connection(("127.0.0.1", self.port))
        sock = socket.socket(socket.AF_UNIX)
        sock.connect(str(self.path))
        return sock

    async def configured(self, **more: Any) -> GuestLink:
        link = await self.connect()
        work = self.folder / "work"
        work.mkdir()
        await link.configure(
            {
                "workdir": str(work),
                "public_workdir": "/workspace",
                "roots": [str(work)],
                "env": {"PATH": "/usr/bin:/bin"},
                "rlimits": [(resource.RLIMIT_CORE, 0)],
                "linger_s": None,
                "deadline_s": None,
                "oom": None,
                **more,
            }
        )
        return link

    def box(self, link: GuestLink) -> GuestBox:
        async def nothing() -> None:
            pass

        return GuestBox("box", link, isolation="none", clean_up=nothing)

    async def ended(self) -> int:
        async with asyncio.timeout(20):
            return await self.process.wait()


@asynccontextmanager
async def bare_guest(folder: Path, *, network: bool = False) -> AsyncIterator[BareGuest]:
    """Start a guest that listens at a unix socket, or on TCP with a token that it reads from a file."""
    start = await asyncio.to_thread(lay_out_guest, folder / "code")
    token, more = secrets.token_bytes(32), []
    if network:
        (folder / "token").write_bytes(token)
        more = ["--token-file", str(folder / "token")]
    with socket.create_server(("127.0.0.1", 0)) if network else listen(folder / "guest.sock") as sock:
        port = sock.getsockname()[1] if network else 0
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-I",
            "-S",
            str(start),
            *("--listen-fd", str(sock.fileno()), *more),
            pass_fds=(sock.fileno(),),
            stdin=asyncio.subprocess.DEVNULL,
            env={},
        )
    guest = BareGuest(folder, process, token, port)
    try:
        yield guest
    finally:
        if process.returncode is None:
            link = await guest.connect()
            await link.close()
            await guest.ended()
