"""What perfect knowledge would make of a stream: by hand; neither it nor the real scheduler is ever below the bound."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from benchmarks.clairvoyant import Rule, stream_bound_s, stream_s
from benchmarks.scheduler import Remembered
from trainer.config import TrainConfig
from trainer.scheduler.journal import JOURNAL, entries
from trainer.simulator.fleet import FleetTimes
from trainer.simulator.parts import script_of
from trainer.simulator.run import Saved, simulate


def rule(lag: int = 1, slots: int = 99, learn_s: float = 10, batch: int = 1) -> Rule:
    return Rule(batch=batch, lag=lag, slots=slots, learn_s=learn_s)


def test_each_part_of_the_bound_binds_where_it_alone_can() -> None:
    assert stream_bound_s([[30, 30], [30, 30]], rule(slots=1)) == 120 + 10
    assert stream_bound_s([[1], [2], [3]], rule()) == 1 + 3 * 10
    assert stream_bound_s([[1], [500]], rule()) == 500 + 10
    # two seats for three groups: 3 x (30 + 10), and one of them stands empty while the last step is learned
    assert stream_bound_s([[30]] * 3, rule()) == (3 * 40 + 10) / 2
    assert stream_bound_s([[90]] * 6, rule(lag=2)) == (6 * 100 + 10 * 3) / 3
    assert stream_bound_s([[90]] * 6, rule(lag=2), ends=False) == 6 * 100 / 3


def test_the_best_order_is_found_and_admission_kept() -> None:
    assert stream_s([[30]] * 3, rule()) == 30 + 10 + 30 + 10  # in at 0, 0 and 40, learned at 40, 50 and 80
    assert stream_s([[1], [1], [1], [60]], rule(lag=1)) == 60 + 10  # longest first
    assert stream_s([[2, 2], [4]], rule(lag=1, slots=1, learn_s=1)) == 9
    assert stream_s([[5, 5]], rule(lag=1, slots=2)) == 15


@pytest.mark.parametrize("seed", range(12))
def test_nothing_is_faster_than_the_bound(tmp_path: Path, seed: int) -> None:
    draw = Random(seed)
    lag, slots, learn_s = draw.randint(1, 3), draw.choice([2, 6, 64]), draw.choice([1.0, 20.0, 200.0])
    sizes = {"groups_per_step": 2, "group_size": 3, "workers": 1, "concurrency": slots, "batching": "eager"}
    config = TrainConfig.model_validate(
        {
            "steps": 6,
            "seed": seed,
            "rollout": {**sizes, "mode": "stream", "staleness": lag},
            "filter": {"dynamic": "off"},
        }
    )
    fleet = FleetTimes.model_validate(
        {
            "sampler": {"tokens_per_s": 1e9, "tokens": 50},
            "environment": {"turns": 2, "step_s": {"median": 10, "p99": 200}},
            "learner": {"step_s": learn_s},
        }
    )
    plans = Remembered(config)
    found = simulate(config, fleet, tmp_path, Saved(plans))
    learned = {
        one for line in entries(tmp_path / JOURNAL) if line.kind == "consumed" for one in line.rollouts
    }
    works: dict[str, list[float]] = {}
    for request in (request for drawn in plans.drawn for request in drawn if request.id in learned):
        works.setdefault(request.group_id, []).append(script_of(request, fleet).env_s + 2 * 1)
    own = rule(lag, slots, learn_s, batch=2)
    bound_s = stream_bound_s(list(works.values()), own)
    assert found.total_s >= bound_s - 1e-6
    assert stream_s(list(works.values()), own) >= bound_s - 1e-6
