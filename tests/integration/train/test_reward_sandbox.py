"""The sandbox reward worker against an embedded ROCK server: a command in a box of its own says what a rollout earned."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from reward_cases import config_of, played, reward, solved

from rock_env.client import Client
from rock_env.lifecycle import SandboxState
from rock_env.local import EmbeddedServer, start_embedded
from trainer.errors import ConfigError

SAYS = """printf 'a word before\\n{"reason": "", %s}\\n' """
VERIFY = """python3 -c '
import json
sample = json.load(open("sample.json"))
expected = ", ".join(json.loads(sample["reference"])["answer"])
right = "{" + expected + "}" in open("answer.txt").read() == sample["turns"][-1]["action"]
print("checking", len(sample["turns"]), "turn")
print(json.dumps({"reason": expected, "score": int(right)}))
'"""


@pytest.fixture(scope="module")
def rock() -> Iterator[EmbeddedServer]:
    with start_embedded() as server:
        yield server


def judged(
    rock: EmbeddedServer, folder: Path, command: str, *rollouts: Any, **options: Any
) -> tuple[list[Any], Any]:
    config = config_of(
        {"worker": "sandbox", "options": {"command": command, **options}}, attempts=2, time_limit_s=60
    )
    return reward(config, list(rollouts) or [solved()], folder, rock_address=rock.address)


def test_the_command_grades_what_the_policy_said(rock: EmbeddedServer, tmp_path: Path) -> None:
    found, metrics = judged(rock, tmp_path, VERIFY, solved(name="a"), played("\\boxed{12345}", name="b"))
    assert [t.failure for t in found] == [None, None]
    assert [t.reward for t in found] == [1.0, 0.0]
    assert found[0].reward_source.raw.startswith("checking 1 turn\n")
    assert (metrics["reward/env_distance"], metrics["reward/failed"]) == (0.0, 0)

    async def boxes() -> list[Any]:
        async with Client(rock.address) as client:
            return await client.sandboxes.list()

    assert {box.state for box in asyncio.run(boxes())} <= {SandboxState.DELETING}


def test_it_may_reward_turns(rock: EmbeddedServer, tmp_path: Path) -> None:
    (found,), _ = judged(rock, tmp_path, SAYS % '"turns": [0.25]', gives="turns")
    assert (found.turn_rewards, found.reward) == ((0.25,), 1.0)


@pytest.mark.parametrize(
    ("command", "code", "said"),
    [
        ("exit 1", "reward_unanswered", "exit code 1"),
        ("kill -9 $$", "reward_unanswered", "signal 9"),
        ("no_such_program_here", "reward_unanswered", "exit code 127"),
        (SAYS % '"score": 1' + "; exit 3", "reward_unanswered", "exit code 3"),
        ("true", "reward_unreadable", "gave no verdict"),
        ("echo 0", "reward_unreadable", "got int"),
        (SAYS % '"score": 2', "reward_unreadable", "from 0 to 1"),
        (SAYS % '"score": 1' + "; echo done", "reward_unreadable", "got 'done'"),
        (
            "yes '" + '{"reason": "", "score": 1}' + "' | head -c 2000000",
            "reward_unreadable",
            "more than is kept",
        ),
    ],
)
def test_a_command_without_a_verdict_is_a_failure_and_no_zero(rock, tmp_path, command, code, said) -> None:
    (found,), metrics = judged(rock, tmp_path, command)
    assert math.isnan(found.reward)
    assert found.failure.code == code
    assert said in found.failure.message
    assert metrics["reward/retries"] == 0


def test_a_command_that_hangs_is_ended(rock: EmbeddedServer, tmp_path: Path) -> None:
    config = config_of(
        {"worker": "sandbox", "options": {"command": "sleep 1000"}}, attempts=1, time_limit_s=10
    )
    (found,), _ = reward(config, [solved()], tmp_path, rock_address=rock.address)
    assert found.failure.code == "reward_unanswered"


def test_a_box_that_cannot_be_made_stops_the_run(rock: EmbeddedServer, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be made"):
        judged(rock, tmp_path, "true", image="an-image-for-another-backend")


def test_a_lost_server_is_a_failure(tmp_path: Path) -> None:
    with start_embedded() as server:
        address = server.address
    config = config_of({"worker": "sandbox", "options": {"command": "true"}}, attempts=1, time_limit_s=2)
    (found,), _ = reward(config, [solved()], tmp_path, rock_address=address)
    assert found.failure.code == "reward_unanswered"
