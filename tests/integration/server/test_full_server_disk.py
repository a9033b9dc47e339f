"""A server whose disk is full says so in one wording, with RESOURCE_EXHAUSTED, and goes on once there is space."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import asyncpg
import pytest

import rock_env
from rock_env.errors import DiskFull, InfraError, RockError, Unavailable, of_full_disk
from rock_env.local import start_embedded
from rock_env.store.sqlite.records import SqliteStore

WORDS = "the server's disk is full: .*Free some space there, then ask again"


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 64 MiB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=64m", "ale-test", str(folder)]
    made = subprocess.run(mount, capture_output=True, text=True, check=False)
    if made.returncode != 0:
        pytest.skip(f"cannot mount a small disk, which needs root: {made.stderr.strip()}")
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


def fill(disk: Path) -> Path:
    filler = disk / "filler"
    with filler.open("wb", buffering=0) as file:
        for size in (1 << 20, 1 << 12):
            while True:
                try:
                    file.write(bytes(size))
                except OSError:
                    break
    return filler


def test_a_full_state_folder_has_one_wording(disk: Path) -> None:
    with start_embedded([f"--state={disk}"]) as server, rock_env.connect(server.address) as rock:
        box = rock.sandboxes.create()
        box.files.write("data", os.urandom(1 << 20))
        filler = fill(disk)
        for what in (rock.sandboxes.create, box.snapshot, lambda: box.fork(1)):
            with pytest.raises(DiskFull, match=WORDS):
                what()
        filler.unlink()
        assert box.exec(["cat", "data"]).exit_code == 0
        box.snapshot()
        with rock.sandboxes.create() as another:
            assert another.exec(["true"]).exit_code == 0


async def test_a_full_sqlite_store_is_a_full_disk(disk: Path) -> None:
    async with await SqliteStore.open(disk / "rock.db") as store:
        fill(disk)

        async def grow() -> None:
            for number in range(1000):
                await store._run(
                    lambda number=number: store._open_database.execute(f"create table t{number} (x)")
                )

        with pytest.raises(RockError) as caught:
            await grow()
    assert of_full_disk(caught.value) is not None


def raised(error: RockError, cause: BaseException | None) -> RockError:
    error.__cause__ = cause
    return error


@pytest.mark.parametrize(
    "error",
    [
        OSError(28, "No space left on device", "/state/x"),
        OSError(122, "Disk quota exceeded"),
        raised(InfraError("cannot keep it"), OSError(28, "No space left on device")),
        raised(Unavailable("later"), raised(InfraError("x"), asyncpg.DiskFullError("could not extend file"))),
        InfraError("the Docker engine refused: write /var/lib/docker/tmp/x: no space left on device"),
    ],
)
def test_what_a_full_disk_is(error: Exception) -> None:
    full = of_full_disk(error)
    assert isinstance(full, DiskFull)
    assert full.grpc == "RESOURCE_EXHAUSTED"
    assert full.message.startswith("the server's disk is full: ")


@pytest.mark.parametrize(
    "error",
    [
        OSError(13, "Permission denied"),
        InfraError("The command 'echo no space left on device' returned a non-zero code: 1"),
        raised(InfraError("no"), OSError(2, "No such file")),
        DiskFull("a sandbox's own disk is full"),
    ],
)
def test_what_no_full_disk_of_the_server_is(error: Exception) -> None:
    assert of_full_disk(error) is None
