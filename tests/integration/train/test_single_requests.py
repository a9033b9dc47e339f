"""Rollouts of a Hugging Face model that ask for one answer each, through Ray and a real ROCK server."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from random_llama import random_llama

from agent_runtime.policy import SampleRequest
from agent_runtime.store import decode
from agent_runtime.types import SamplingParams
from rock_env.plugins import env_params, load_env
from trainer.config import TrainConfig
from trainer.processes.fleet import Fleet
from trainer.rollout.tasks import eval_requests

pytestmark = [pytest.mark.ray, pytest.mark.timeout(300)]


def asked(name: str, count: int) -> SampleRequest:
    return SampleRequest(name, 0, np.arange(count, dtype=np.int32), SamplingParams(max_tokens=3), 1)


def test_workers_ask_for_one_answer_each_and_the_record_has_what_was_sampled(tmp_path: Path) -> None:
    config = TrainConfig.model_validate(
        {
            "env": "frozen_lake",
            "env_args": {"max_turns": 3},
            "model": random_llama(tmp_path / "llama", context=1024),
            "agent": {"window_turns": 1},
            "sampling": {"max_tokens": 4},
            "rollout": {"batching": "eager", "workers": 2, "engines": 1},
            "eval": {"temperature": 1.0},
        }
    )
    spec = load_env("frozen_lake")
    params = env_params(spec, '{"max_turns": 3}').canonical()
    tasks = [f"train/{number}" for number in range(6)]
    with Fleet(config, None) as fleet:
        fleet.publish(4)
        played = [decode(each) for each in fleet.run(eval_requests(config, params, 1, tasks), 4)]
        answers = fleet.sample([asked("a", 5), asked("b", 90)])
        again = fleet.sample([asked("b", 90)])
        fleet.publish(5)
        newer = fleet.sample([asked("a", 5)])
    assert len(played) == 6
    assert [each.failure for each in played] == [None] * 6
    turns = [turn for each in played for turn in each.turns]
    assert len(turns) >= 12
    assert all(turn.policy_version == 4 and 1 <= len(turn.completion_ids) <= 4 for turn in turns)
    assert [answer.policy_version for answer in (*answers, *newer)] == [4, 4, 5]
    assert again[0].ids.tolist() == answers[1].ids.tolist()
    assert newer[0].ids.tolist() == answers[0].ids.tolist()
