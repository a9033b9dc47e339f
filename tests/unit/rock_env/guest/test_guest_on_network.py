"""A guest on a network: both sides prove that they know the token, nobody tells it, and a silent loss is found."""

from __future__ import annotations

import asyncio
import socket
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from bare_guest import BareGuest, bare_guest
from waiting import until

from rock_env.errors import InfraError
from rock_env.guest import protocol
from rock_env.guest.protocol import CHALLENGE, HEADER, HELLO, PROOF, TOKEN_BYTES, proof
from rock_env.guest_host import link as guest_link
from rock_env.guest_host.code import lay_out_guest
from rock_env.guest_host.link import GuestLink
from rock_env.sandbox import OutputChunk

NONCE = b"n" * TOKEN_BYTES


@pytest.fixture
async def guest(tmp_path: Path) -> AsyncIterator[BareGuest]:
    async with bare_guest(tmp_path, network=True) as made:
        yield made


class Wire:
    """A relay before a guest: it keeps what passes, and can drop everything without a word."""

    def __init__(self, port: int) -> None:
        self._port = port
        self.passed = bytearray()
        self.silent = asyncio.Event()
        self.relaying: list[asyncio.Future[list[BaseException | None]]] = []

    async def relay(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there_reader, there_writer = await asyncio.open_connection("127.0.0.1", self._port)

        async def pump(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
            try:
                while data := await source.read(1 << 16):
                    self.passed += data
                    if not self.silent.is_set():
                        sink.write(data)
            finally:
                sink.close()

        both = pump(reader, there_writer), pump(there_reader, writer)
        self.relaying.append(asyncio.gather(*both, return_exceptions=True))


@asynccontextmanager
async def wire_to(guest: BareGuest) -> AsyncIterator[tuple[Wire, int]]:
    wire = Wire(guest.port)
    async with await asyncio.start_server(wire.relay, "127.0.0.1", 0) as server:
        yield wire, server.sockets[0].getsockname()[1]
        for each in wire.relaying:
            each.cancel()
        await asyncio.gather(*wire.relaying, return_exceptions=True)


def said(kind: int, payload: bytes, request: int = 1) -> bytes:
    return HEADER.pack(kind, request, len(payload)) + payload


async def heard(guest: BareGuest, *frames: bytes) -> bytes:
    """Say these frames as a stranger and return what is answered until the guest hangs up."""
    reader, writer = await asyncio.open_connection("127.0.0.1", guest.port)
    answer = b""
    try:
        for frame in frames:
            writer.write(frame)
        answer = await reader.read()
    except ConnectionError:
        pass  # it hung up with words of ours unread
    writer.close()
    return answer


async def test_the_token_never_passes_the_wire(guest: BareGuest) -> None:
    link = await guest.configured()
    assert not (guest.folder / "token").exists(), "the guest removed the file"
    async with wire_to(guest) as (wire, port):
        again = await GuestLink.reach("127.0.0.1", port, token=guest.token)
        assert (await guest.box(again).exec(["echo", "passed"])).stdout == b"passed\n"
        assert b"passed" in wire.passed
        assert guest.token not in wire.passed
        await again.close(end=False)
    assert link.failure


async def test_a_wrong_token_is_found_before_anything_is_told(guest: BareGuest) -> None:
    link = await guest.configured()
    with pytest.raises(InfraError, match="does not know the token of the sandbox"):
        await guest.connect(b"x" * TOKEN_BYTES)
    assert (await guest.box(link).exec(["true"])).ok, "the box goes on"


@pytest.mark.parametrize(
    "frames",
    [
        [said(HELLO, NONCE), said(PROOF, NONCE)],
        [said(PROOF, NONCE)],
        [said(HELLO, NONCE), said(HELLO, NONCE)],
        [said(HELLO, b"short")],
        [said(protocol.EXEC, b"")],
        [HEADER.pack(HELLO, 1, TOKEN_BYTES + 1)],
        [HEADER.pack(HELLO, 1, 0xFFFFFFFF)],
    ],
)
async def test_who_proves_nothing_is_hung_up_on(guest: BareGuest, frames: list[bytes]) -> None:
    link = await guest.configured()
    assert len(await heard(guest, *frames)) in (0, HEADER.size + 2 * TOKEN_BYTES)
    assert (await guest.box(link).exec(["true"])).ok, "the server's connection goes on"


async def test_what_was_recorded_proves_nothing(guest: BareGuest) -> None:
    link = await guest.configured()
    async with wire_to(guest) as (wire, port):
        await (await GuestLink.reach("127.0.0.1", port, token=guest.token)).close(end=False)
    hello = said(HELLO, b"", protocol.hello_request(protocol.VERSION))[:5]
    start = wire.passed.index(hello)
    recorded = bytes(wire.passed[start : start + HEADER.size + TOKEN_BYTES])
    shown = wire.passed.index(bytes([PROOF]) + hello[1:])
    again = bytes(wire.passed[shown : shown + HEADER.size + TOKEN_BYTES])
    answer = await heard(guest, recorded, again)
    assert answer[0] == CHALLENGE
    assert len(answer) == HEADER.size + 2 * TOKEN_BYTES, "and no READY"
    assert link.failure


async def test_a_guests_own_proof_is_no_servers(guest: BareGuest) -> None:
    """A challenge sent back as it came is refused: the two proofs are of different words."""
    await guest.configured()
    reader, writer = await asyncio.open_connection("127.0.0.1", guest.port)
    writer.write(said(HELLO, NONCE))
    answer = await reader.readexactly(HEADER.size + 2 * TOKEN_BYTES)
    theirs, shown = answer[-2 * TOKEN_BYTES : -TOKEN_BYTES], answer[-TOKEN_BYTES:]
    assert (
        shown == proof(guest.token, b"guest", NONCE + theirs) != proof(guest.token, b"server", NONCE + theirs)
    )
    writer.write(said(PROOF, shown))
    assert await reader.read() == b""
    writer.close()


async def test_a_silent_loss_is_found(guest: BareGuest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guest_link, "PING_S", 0.2)
    monkeypatch.setattr(guest_link, "SILENT_S", 1.0)
    await guest.configured()
    async with wire_to(guest) as (wire, port):
        link = await GuestLink.reach("127.0.0.1", port, token=guest.token)
        script = "echo begun; until test -e go; do sleep 0.02; done; exit 9"
        async with guest.box(link).start(["sh", "-c", script], key="k") as command:
            assert isinstance(await anext(command.events()), OutputChunk)
            wire.silent.set()
            assert "nothing was heard of it" in await link.lost
    again = guest.box(await guest.connect())
    await again.write_file("go", b"")
    assert (await again.start([], key="k").result()).exit_code == 9, "the command went on meanwhile"


async def test_a_guest_that_has_nothing_to_say_is_not_lost(
    guest: BareGuest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(guest_link, "PING_S", 0.05)
    monkeypatch.setattr(guest_link, "SILENT_S", 5.0)
    await guest.configured()
    async with wire_to(guest) as (wire, port):
        link = await GuestLink.reach("127.0.0.1", port, token=guest.token)
        before = len(wire.passed)
        await until(lambda: wire.passed.count(said(protocol.DONE, b"", 0), before) > 1)
        assert not link.failure
        await link.close(end=False)


async def test_who_answers_otherwise_is_no_guest() -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readexactly(HEADER.size)
        _, request, _ = HEADER.unpack(head)
        writer.write(said(protocol.READY, b"\1", request))
        await reader.read()
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        with pytest.raises(InfraError, match="no challenge"):
            await GuestLink.reach("127.0.0.1", port, token=NONCE)
    with pytest.raises(InfraError, match=f"cannot connect to the guest of a sandbox at 127.0.0.1:{port}"):
        await GuestLink.reach("127.0.0.1", port, token=NONCE)


@pytest.fixture
def start(tmp_path: Path) -> Callable[..., asyncio.Future[asyncio.subprocess.Process]]:
    code = lay_out_guest(tmp_path / "code")

    def started(*arguments: str) -> asyncio.Future[asyncio.subprocess.Process]:
        return asyncio.ensure_future(
            asyncio.create_subprocess_exec(
                *(sys.executable, "-I", "-S", str(code), *arguments), stderr=asyncio.subprocess.PIPE
            )
        )

    return started


@pytest.mark.parametrize("host", ["127.0.0.1", "[::1]"])
async def test_a_guest_binds_the_address_it_is_given(
    tmp_path: Path, start: Callable[..., asyncio.Future[asyncio.subprocess.Process]], host: str
) -> None:
    family, plain = (socket.AF_INET6, "::1") if ":" in host else (socket.AF_INET, host)
    with socket.socket(family) as probe:
        try:
            probe.bind((plain, 0))
        except OSError:
            pytest.skip(f"this machine has no {plain}")
        port = probe.getsockname()[1]
    (tmp_path / "token").write_bytes(NONCE)
    process = await start("--listen-tcp", f"{host}:{port}", "--token-file", str(tmp_path / "token"))
    while True:
        try:
            link = await GuestLink.reach(plain, port, token=NONCE)
            break
        except InfraError:
            await asyncio.sleep(0.02)  # it has not bound yet
    await link.close()
    assert await process.wait() == 0


@pytest.mark.parametrize(
    ("token", "arguments", "words"),
    [
        (b"short", ("--listen-tcp", "127.0.0.1:0", "--token-file", "{}"), b"has 5 bytes"),
        (b"x" * 40, ("--listen-tcp", "127.0.0.1:0", "--token-file", "{}"), b"expected 32"),
        (NONCE, ("--listen-tcp", "127.0.0.1:0"), b"on a network --token-file"),
        (NONCE, ("--token-file", "{}"), b"expected --listen-fd"),
        (NONCE, ("--listen-fd",), b"expected --listen-fd"),
        (NONCE, ("--listen-fd", "3", "--listen-path", "/x"), b"expected --listen-fd"),
    ],
)
async def test_a_wrong_start_is_refused(
    tmp_path: Path,
    start: Callable[..., asyncio.Future[asyncio.subprocess.Process]],
    token: bytes,
    arguments: tuple[str, ...],
    words: bytes,
) -> None:
    (tmp_path / "token").write_bytes(token)
    process = await start(*(each.format(tmp_path / "token") for each in arguments))
    _, error = await process.communicate()
    assert process.returncode == 1
    assert words in error
