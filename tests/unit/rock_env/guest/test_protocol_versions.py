"""Servers and guests of two versions of the protocol between them: neighbours understand each other, others say so."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from bare_guest import BareGuest, bare_guest

from rock_env.errors import FailedPrecondition, InfraError
from rock_env.guest import protocol
from rock_env.guest.protocol import HEADER, HELLO, PREVIOUS, READY, VERSION, VERSION_SIZE
from rock_env.guest_host.link import GuestLink, listen

TOKEN = b"t" * protocol.TOKEN_BYTES


@pytest.fixture
async def guest(tmp_path: Path) -> AsyncIterator[BareGuest]:
    async with bare_guest(tmp_path) as started:
        yield started


async def test_the_guest_of_this_version_tells_it(guest: BareGuest) -> None:
    link = await guest.configured()
    assert link.version == VERSION == PREVIOUS + 1
    assert (await guest.box(link).exec(["true"])).exit_code == 0


async def asked(path: Path, request: int) -> bytes:
    """Say HELLO with this request id as a server of another version does, and return all that is answered."""
    loop = asyncio.get_running_loop()
    with socket.socket(socket.AF_UNIX) as sock:
        sock.setblocking(False)
        await loop.sock_connect(sock, str(path))
        await loop.sock_sendall(sock, HEADER.pack(HELLO, request, len(TOKEN)) + TOKEN)
        return await loop.sock_recv(sock, 100)


async def test_a_server_of_the_version_before_gets_the_answer_it_knows(guest: BareGuest) -> None:
    guest.token = TOKEN
    assert await asked(guest.path, 1) == HEADER.pack(READY, 1, 1) + b"\1"
    await guest.ended()  # nobody configured it


@pytest.mark.parametrize("version", [VERSION, VERSION + 1, 0xFFFF])
async def test_a_newer_server_learns_what_the_guest_speaks(guest: BareGuest, version: int) -> None:
    guest.token = TOKEN
    request = protocol.hello_request(version)
    told = b"\1" + VERSION_SIZE.pack(VERSION)
    assert await asked(guest.path, request) == HEADER.pack(READY, request, len(told)) + told
    await guest.ended()


async def greeted(folder: Path, ready: bytes) -> GuestLink:
    """Connect to a guest that answers HELLO so."""
    loop = asyncio.get_running_loop()
    with listen(folder / "guest.sock") as listener:
        listener.setblocking(False)
        connecting = loop.create_task(GuestLink.connect(folder / "guest.sock", token=TOKEN))
        peer, _ = await loop.sock_accept(listener)
    with peer:
        kind, request, size = HEADER.unpack_from(hello := await loop.sock_recv(peer, 100))
        assert (kind, hello[HEADER.size :], size) == (HELLO, TOKEN, len(TOKEN))
        await loop.sock_sendall(peer, HEADER.pack(READY, request, len(ready)) + ready)
        return await connecting


@pytest.mark.parametrize("ready", [b"", b"\0", b"\1"])
async def test_a_guest_of_the_version_before_is_taken_up(tmp_path: Path, ready: bytes) -> None:
    link = await greeted(tmp_path, ready)
    assert link.version == PREVIOUS
    await link.close(end=False)


async def test_a_guest_that_is_too_new_is_left_as_it_is(tmp_path: Path) -> None:
    with pytest.raises(
        FailedPrecondition, match=rf"speaks version {VERSION + 1} .* this server 0 and {VERSION}\."
    ):
        await greeted(tmp_path, b"\0" + VERSION_SIZE.pack(VERSION + 1))


async def test_an_answer_that_is_cut_short_is_no_version(tmp_path: Path) -> None:
    with pytest.raises(InfraError, match="cannot be read"):
        await greeted(tmp_path, b"\0\1")
