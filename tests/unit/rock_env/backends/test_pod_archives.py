"""Snapshots of pods as files: whole or not at all, bounded, and what a killed server was writing goes."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from rock_env.backends.kubernetes import archives
from rock_env.backends.kubernetes.archives import Archives
from rock_env.errors import FailedPrecondition, InfraError, InvalidArgument, NotFound, ResourceExhausted


async def blocks(*given: bytes, fails: bool = False) -> AsyncGenerator[bytes]:
    for block in given:
        yield block
    if fails:
        raise InvalidArgument("the guest refused")


async def content(kept: Archives, name: str) -> bytes:
    return b"".join([block async for block in kept.read(name, share="box")])


async def test_a_snapshot_is_read_as_it_was_kept_by_every_server_of_the_folder(tmp_path: Path) -> None:
    kept = Archives(tmp_path / "snapshots", most_bytes=100, room_bytes=1 << 30)
    assert await kept.all() == set()
    assert await kept.keep("one", blocks(b"ab", b"", b"c" * 3_000_000), share="box") == 3_000_002
    other = Archives(tmp_path / "snapshots", most_bytes=100, room_bytes=1 << 30)
    assert await other.all() == {"one"}
    assert await content(other, "one") == b"ab" + b"c" * 3_000_000
    assert (tmp_path / "snapshots").stat().st_mode & 0o077 == 0
    await other.close()
    await kept.delete("one")
    await kept.delete("one")
    assert await kept.all() == set()
    with pytest.raises(NotFound, match="Ask the server that made it"):
        await kept.need("one")
    with pytest.raises(NotFound, match="deleted meanwhile"):
        await content(kept, "one")


async def test_what_fails_midway_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archives, "_HEADS_BYTES", 0)
    kept = Archives(tmp_path / "snapshots", most_bytes=10, room_bytes=1 << 30)
    with pytest.raises(InvalidArgument, match="more than 10 bytes"):
        await kept.keep("large", blocks(b"x" * 6, b"x" * 6), share="box")
    with pytest.raises(InvalidArgument, match="the guest refused"):
        await kept.keep("refused", blocks(b"x", fails=True), share="box")
    await kept.keep("one", blocks(b"x"), share="box")
    with pytest.raises(FailedPrecondition, match="'one' already"):
        await kept.keep("one", blocks(b"y"), share="box")
    assert await content(kept, "one") == b"x"
    (tmp_path / "snapshots" / ".two.tar.part").write_bytes(b"")

    def full(*_: object) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(archives, "_write", full)
    with pytest.raises(InfraError, match="No space left"):
        await kept.keep("full", blocks(b"x"), share="box")
    assert sorted(path.name for path in (tmp_path / "snapshots").iterdir()) == [".two.tar.part", "one.tar"]


async def test_what_a_killed_server_was_writing_goes_and_what_is_being_written_stays(tmp_path: Path) -> None:
    kept = Archives(tmp_path / "snapshots", most_bytes=10, room_bytes=1 << 30)
    await kept.keep("one", blocks(b"x"), share="box")
    old, new = (tmp_path / "snapshots" / f".{name}.part" for name in ("old", "new"))
    for part in (old, new):
        part.write_bytes(b"")
    past = time.time() - 2 * 3600
    os.utime(old, (past, past))
    assert await kept.all() == {"one"}
    assert (old.exists(), new.exists()) == (False, True)


async def test_without_a_state_folder_snapshots_end_with_the_server() -> None:
    kept = Archives(None, most_bytes=10, room_bytes=1 << 30)
    await kept.keep("one", blocks(b"x"), share="box")
    folder = kept._path("one").parent
    assert await kept.all() == {"one"}
    await kept.close()
    assert not folder.exists()
    assert await kept.all() == set()


async def test_all_snapshots_of_a_server_have_one_room(tmp_path: Path) -> None:
    kept = Archives(tmp_path / "snapshots", most_bytes=100, room_bytes=10)
    await kept.keep("one", blocks(b"x" * 6), share="box")
    with pytest.raises(ResourceExhausted, match="more than 10 bytes"):
        await kept.keep("two", blocks(b"x" * 2, b"x" * 3), share="box")
    await kept.keep("two", blocks(b"x" * 4), share="box")
    later = Archives(tmp_path / "snapshots", most_bytes=100, room_bytes=10)
    with pytest.raises(ResourceExhausted):
        await later.keep("three", blocks(b"x"), share="box")
    await later.delete("one")
    await later.delete("one")
    await later.keep("three", blocks(b"x" * 6), share="box")
    with pytest.raises(ResourceExhausted):
        await later.keep("four", blocks(b"x"), share="box")
    assert await later.all() == {"two", "three"}


async def test_snapshots_that_are_written_at_once_share_the_room(tmp_path: Path) -> None:
    kept = Archives(tmp_path / "snapshots", most_bytes=100, room_bytes=10)
    acts = [kept.keep(f"s{number}", blocks(b"x", b"x", b"x"), share="box") for number in range(8)]
    done = await asyncio.gather(*acts, return_exceptions=True)
    assert 1 <= len([size for size in done if size == 3]) <= 3
    assert all(size == 3 or isinstance(size, ResourceExhausted) for size in done)
    assert sum(path.stat().st_size for path in (tmp_path / "snapshots").iterdir()) <= 10


async def test_servers_that_share_a_folder_share_its_room_and_need_it_mounted(tmp_path: Path) -> None:
    one, two = (Archives(tmp_path / "all", shared=True, most_bytes=100, room_bytes=15) for _ in range(2))
    with pytest.raises(InfraError, match="could not be kept"):
        await one.keep("early", blocks(b"x"), share="box")
    assert not (tmp_path / "all").exists()
    (tmp_path / "all").mkdir()
    await one.keep("one", blocks(b"x" * 10), share="box")
    await two.need("one")
    with pytest.raises(ResourceExhausted, match="more than 15 bytes"):
        await two.keep("two", blocks(b"x" * 10), share="box")
    await one.delete("one")
    assert await two.keep("two", blocks(b"x" * 10), share="box") == 10
    assert await one.all() == {"two"}
    for each in (one, two):
        await each.close()
    assert (tmp_path / "all" / "two.tar").exists()
