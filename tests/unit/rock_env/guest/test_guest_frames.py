"""Frames from a hostile guest: split anywhere, malformed, huge. The server's end survives and says what was wrong."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rock_env.errors import RockError
from rock_env.guest import protocol
from rock_env.guest.command import ACKED, ALL, RING, OutputBuffer
from rock_env.guest.protocol import HEADER, BadFrame, FrameReader
from rock_env.guest_host.box import GuestBox
from rock_env.guest_host.link import GuestLink

FRAMES = st.lists(
    st.tuples(
        st.integers(0, 255),
        st.integers(0, 2**32 - 1),
        st.binary(max_size=40) | st.integers(16_000, 70_000).map(lambda size: b"\x5a" * size),
    ),
    max_size=8,
)


def pack(frames: list[tuple[int, int, bytes]]) -> bytes:
    return b"".join(HEADER.pack(kind, request, len(body)) + body for kind, request, body in frames)


def feed(reader: FrameReader, data: bytes, sizes: list[int]) -> list[tuple[int, int, bytes]]:
    found, at = [], 0
    for size in [*sizes, *[1 << 14] * (len(data) + 1)]:
        if at == len(data):
            break
        space = reader.space()
        assert len(space) > 0
        count = min(size, len(space), len(data) - at)
        space[:count] = data[at : at + count]
        at += count
        found += [(kind, request, bytes(body)) for kind, request, body in reader.filled(count)]
    return found


@given(FRAMES, st.lists(st.integers(1, 5000), max_size=50))
def test_frames_come_out_as_they_went_in_however_they_are_cut(
    frames: list[tuple[int, int, bytes]], sizes: list[int]
) -> None:
    assert feed(FrameReader(), pack(frames), sizes) == frames


@given(FRAMES, st.integers(1, 2**32 - 1 - (2 << 20)))
def test_a_frame_beyond_the_limit_is_refused_before_it_is_kept(
    frames: list[tuple[int, int, bytes]], excess: int
) -> None:
    reader = FrameReader()
    head = HEADER.pack(1, 1, protocol.MAX_FRAME_BYTES + excess)
    with pytest.raises(BadFrame, match="at most"):
        feed(reader, pack(frames) + head, [])


@given(
    st.sampled_from([ALL, ACKED, RING]),
    st.integers(0, 300) | st.none(),
    st.lists(st.tuples(st.binary(min_size=1, max_size=200), st.integers(0, 400)), max_size=30),
)
def test_what_is_kept_of_a_stream_is_exact(
    keep: int, limit: int | None, steps: list[tuple[bytes, int]]
) -> None:
    output = OutputBuffer(-1, keep=keep, limit=None if keep == RING else limit, ring=100)
    whole = b""
    for data, acked in steps:
        output.add(data)
        output.acked(min(acked, output.end))
        whole = whole + data if keep == RING or limit is None else (whole + data)[:limit]
        assert output.end == len(whole)
        for offset in range(output.base, output.end + 1, 7):
            assert b"".join(output.pieces(offset)) == whole[offset:]
        if keep == ALL:
            assert output.base == 0
        elif keep == RING:
            assert output.size >= min(100, output.end), "at least as much as was asked for"
            assert output.size < 100 + 4096 + 200
        else:
            assert output.base >= min(acked, output.end)
    assert output.dropped == (
        keep != RING and limit is not None and sum(len(data) for data, _ in steps) > limit
    )


def fake_guest(path: Path) -> socket.socket:
    sock = socket.socket(socket.AF_UNIX)
    sock.bind(str(path))
    sock.listen(1)
    return sock


@given(
    junk=st.lists(st.tuples(st.integers(60, 80), st.integers(0, 6), st.binary(max_size=30)), max_size=12),
    tail=st.binary(max_size=30),
)
def test_no_answer_of_a_guest_hurts_its_server(
    tmp_path_factory: pytest.TempPathFactory, junk: list[tuple[int, int, bytes]], tail: bytes
) -> None:
    async def attack() -> None:
        path = tmp_path_factory.mktemp("fuzz") / "guest.sock"
        with fake_guest(path) as listener:
            listener.setblocking(False)
            loop = asyncio.get_running_loop()
            connecting = loop.create_task(GuestLink.connect(path, token=b"t" * 32))
            peer, _ = await loop.sock_accept(listener)
            with peer:
                _, request, _ = HEADER.unpack_from(await loop.sock_recv(peer, 1 << 16))
                await loop.sock_sendall(peer, HEADER.pack(protocol.READY, request, 0))
                link = await connecting
                box = GuestBox("box", link, isolation="none", clean_up=lambda: asyncio.sleep(0))
                calls = [
                    box.exec(["true"]),
                    box.read_file("x"),
                    box.stat("x"),
                    box.processes(),
                    box.exec(["true"], key="k"),
                ]
                tasks = [asyncio.ensure_future(call) for call in calls]
                await asyncio.sleep(0)
                await loop.sock_sendall(peer, pack(junk) + tail)
            async with asyncio.timeout(20):
                for outcome in await asyncio.gather(*tasks, return_exceptions=True):
                    assert not isinstance(outcome, BaseException) or isinstance(outcome, RockError), outcome
                assert await link.lost
            await link.close()

    asyncio.run(attack())


async def test_a_guest_that_floods_is_given_up(tmp_path: Path) -> None:
    path = tmp_path / "guest.sock"
    loop = asyncio.get_running_loop()
    with fake_guest(path) as listener:
        listener.setblocking(False)
        connecting = loop.create_task(GuestLink.connect(path, token=b"t" * 32))
        peer, _ = await loop.sock_accept(listener)
    with peer:
        _, request, _ = HEADER.unpack_from(await loop.sock_recv(peer, 1 << 16))
        await loop.sock_sendall(peer, HEADER.pack(protocol.READY, request, 0))
        link = await connecting
        box = GuestBox("box", link, isolation="none", clean_up=lambda: asyncio.sleep(0))
        command = box.start(["yes"])  # nobody takes its output
        flood = pack([(protocol.STDOUT, 1, b"y" * 100_000)]) * 100
        with pytest.raises(OSError, match=r"pipe|reset"):
            await loop.sock_sendall(peer, flood)
    assert "nobody had room for" in box.failure
    size = 0
    async for event in command.events():
        size += len(getattr(event, "data", b""))
    assert size < 4 << 20
    await link.close()
