"""Sandboxes of failed rollouts stay for somebody to look into them, so many and no more."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from command_line import ale, refused

from agent_runtime.store import read_segment, segment_path
from rock_env.client import Client
from rock_env.lifecycle import SandboxState
from rock_env.local import start_embedded


@pytest.fixture
def server() -> Iterator[str]:
    with start_embedded(["--isolation=none"]) as started:
        yield started.address


async def living(address: str) -> list[str]:
    async with Client(address) as client:
        return [box.id for box in await client.sandboxes.list() if box.state is SandboxState.RUNNING]


def test_failed_rollouts_leave_their_sandbox_and_others_do_not(tmp_path: Path, server: str) -> None:
    played = ("rollout", "--env", "terminal", "-n", "4", "--policy", "random", "--out", "r", "--rock", server)
    done = ale(*played, "--freeze", "2", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    kept = re.findall(r"ale rock shell --rock \S+ (sb-\w+)", done.stdout)
    assert len(kept) == 2
    assert sorted(asyncio.run(living(server))) == sorted(kept)
    rollouts = list(read_segment(segment_path(tmp_path / "r", "rollout")))
    failed = [each.hosting.sandbox_id for each in rollouts if each.hosting and not each.passed]
    assert set(kept) <= set(failed)
    looked = ale("rock", "exec", "--rock", server, kept[0], "--", "ls", cwd=tmp_path)
    assert looked.returncode == 0, looked.stderr
    solved = ale("rollout", "--env", "terminal", "-n", "1", "--rock", server, "--freeze", "1", cwd=tmp_path)
    assert solved.returncode == 0, solved.stderr
    assert "ale rock shell" not in solved.stdout
    assert len(asyncio.run(living(server))) == 2
    lost = next(each for each in rollouts if not each.passed)
    again = ale("replay", "run", "r", lost.id, "--rock", server, "--freeze", "1", cwd=tmp_path)
    assert again.returncode == 0, again.stderr
    assert len(asyncio.run(living(server))) == 3


def test_nothing_stays_in_a_commands_own_server(tmp_path: Path) -> None:
    refused(ale("rollout", "--env", "terminal", "--freeze", "1", cwd=tmp_path), 2, "--freeze keeps nothing")
    done = ale("train", "--env", "swe", "--algo", "ipa", "-s", "rollout.freeze=1", "--dry-run", cwd=tmp_path)
    assert done.returncode != 0
    assert "rollout.freeze=1 keeps nothing" in done.stderr
