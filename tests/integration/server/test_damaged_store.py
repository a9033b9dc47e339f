"""A state folder whose files are damaged: the server names the file when it starts, says what to do, and changes nothing."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from rock_env.store.sqlite.records import SqliteStore


async def made(folder: Path) -> Path:
    """Make an empty store and return its file."""
    file = folder / "records.db"
    async with await SqliteStore.open(file):
        pass
    return file


def _changed(file: Path, *statements: str) -> None:
    with sqlite3.connect(file) as store:
        for statement in statements:
            store.execute(statement)
    store.close()


def _cut(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:3000])


def _garbage(file: Path) -> None:
    file.write_bytes(b"\x07" * 5000)


ROW = (
    "insert into sandboxes (id, tenant, idempotency_key, state, environment, revision, record) "
    "values ('sb-1', '', '', 'RUNNING', '', 1, '{bad')"
)
DAMAGES: dict[str, tuple[int, str, Callable[[Path], None]]] = {
    "no SQLite file": (2, "is not an SQLite file", _garbage),
    "cut short": (65, "is damaged", _cut),
    "other tables": (
        65,
        "does not have the tables of this version",
        lambda file: _changed(file, "drop table sandboxes", "create table sandboxes (x)"),
    ),
    "a newer version": (2, "has version 999", lambda file: _changed(file, "pragma user_version = 999")),
    "a broken record": (65, "a record that cannot be read", lambda file: _changed(file, ROW)),
}


def content(file: Path) -> object:
    """Return what a store holds, or its bytes where it cannot be read."""
    store = sqlite3.connect(file)
    try:
        return list(store.iterdump())
    except sqlite3.DatabaseError:
        return file.read_bytes()
    finally:
        store.close()


def served(folder: Path) -> subprocess.CompletedProcess[str]:
    """Start a server on the folder and return how it ended."""
    command = [
        sys.executable,
        "-m",
        "ale",
        "rock",
        "serve",
        f"--listen=unix://{folder}/s",
        f"--state={folder}",
    ]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


@pytest.mark.parametrize("damage", DAMAGES)
async def test_a_damaged_store_is_named_at_the_start(tmp_path: Path, damage: str) -> None:
    code, said, harm = DAMAGES[damage]
    file = await made(tmp_path)
    harm(file)
    before = content(file)
    ended = served(tmp_path)
    assert (ended.returncode, ended.stdout) == (code, ""), ended.stderr
    (line,) = ended.stderr.splitlines()
    assert "records.db" in line
    assert said in line
    assert content(file) == before


@pytest.mark.parametrize("name", ["images.json", "quotas.json", "pools.json"])
async def test_a_damaged_file_beside_it_is_named(tmp_path: Path, name: str) -> None:
    await made(tmp_path)
    (tmp_path / name).write_text('{"x": [1')
    ended = served(tmp_path)
    assert (ended.returncode, ended.stdout) == (65, ""), ended.stderr
    (line,) = ended.stderr.splitlines()
    assert name in line
    assert "Restore it" in line
    assert (tmp_path / name).read_text() == '{"x": [1'
