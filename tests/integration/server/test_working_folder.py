"""A server imports nothing from the folder it is started in, and neither do its workers."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from rock_env.client import Client
from rock_env.local import embedded

_TRAP = (
    "from pathlib import Path\n\nPath(__file__).with_name('imported').touch()\nraise ImportError('a trap')\n"
)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder with modules named like those that a server and its workers import."""
    for name in (
        "asyncio",
        "grpc",
        "msgspec",
        "pydantic",
        "sandboxes",
        "secrets",
        "tomllib",
        "typing",
        "uvloop",
    ):
        (tmp_path / f"{name}.py").write_text(_TRAP)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_server_started_by_hand(folder: Path) -> None:
    command = [sys.executable, "-m", "rock_env.server", "--help"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert not (folder / "imported").exists()


async def test_an_embedded_server_and_its_workers(folder: Path) -> None:
    async with embedded(["--workers=1"]) as address, Client(address) as client:
        env = await client.make("frozen_lake")
        await env.reset("train/0", 0)
        await env.close()
    assert not (folder / "imported").exists()
