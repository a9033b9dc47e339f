"""A small model plays in the process that asked, without Ray."""

from __future__ import annotations

import importlib
import sys

import pytest
import torch
from local_fleet import config_of

from ale.training.model_play import play_tasks
from trainer.errors import Halted
from trainer.processes.here import is_small, play_here
from trainer.rollout.tasks import eval_requests
from trainer.samplers.generate import TorchInference


@pytest.fixture
def _no_ray(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name == "ray" or name.startswith("trainer.processes.fleet")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "ray", None)


@pytest.mark.usefixtures("_no_ray")
def test_it_is_imported_where_ray_cannot_be(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith("trainer.processes.")]:
        monkeypatch.delitem(sys.modules, name)
    importlib.import_module("trainer.processes.here")


@pytest.mark.usefixtures("_no_ray")
@pytest.mark.parametrize("batching", ["lockstep", "eager"])
def test_a_small_model_plays_without_ray_and_in_order(batching: str) -> None:
    threads = torch.get_num_threads()
    config = config_of(eval={"tasks": 5}, rollout={"batching": batching, "workers": 2})
    played = play_tasks(config)
    assert [each.failure for each in played] == [None] * 5
    assert [each.id for each in played] == [each.id for each in play_tasks(config)]
    assert len({each.task_id for each in played}) == 5
    assert all(turn.completion_ids.size for each in played for turn in each.turns)
    assert torch.get_num_threads() == threads


@pytest.mark.usefixtures("_no_ray")
def test_a_sampler_with_a_bug_is_one_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(self: object, requests: object) -> list[object]:
        return []

    monkeypatch.setattr(TorchInference, "sample", broken)
    with pytest.raises(Halted, match="tiny"):
        play_here(config_of(), eval_requests(config_of(), '{"max_turns":6}', 0, ["train/0", "train/1"]), None)


@pytest.mark.parametrize(
    "changes",
    [
        {"placement": {"pool": [{"cpus": 4}]}},
        {"sampler": "hf"},
        {"model": "somebody/a-model"},
    ],
)
def test_what_is_placed_or_unknown_plays_through_ray(changes: dict[str, object]) -> None:
    assert is_small(config_of())
    assert not is_small(config_of(**changes))
