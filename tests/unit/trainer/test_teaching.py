"""What a step's rollouts can teach: groups that differ, entropies, and the one sentence of a run that starves."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from algo_reference import learners, tables
from family_reference import family_group
from local_fleet import LocalFleet, config_of, local_run

from agent_runtime.types import Trajectory
from trainer.algo.base import credit_step
from trainer.algo.grpo import Grpo, GRPOOptions
from trainer.algo.terms.monitors import outcome_metrics
from trainer.teaching import Signal, signal_metrics, starving, taught


def base() -> Trajectory:
    return next(t for t in learners(family_group(tables()[0], experts=False)) if t.sampled_tokens)


def told(group: str, reward: float, *, entropy: float = math.nan, first: int = 0) -> Trajectory:
    """Return a rollout of a group whose first token is `first`."""
    one = base()
    turns = tuple(
        replace(turn, entropy=entropy, completion_ids=turn.completion_ids + np.int32(first))
        for turn in one.turns
    )
    return replace(one, group_id=group, reward=reward, passed=reward > 0, turns=turns)


def test_groups_are_counted_by_what_they_can_teach():
    step = [
        told("a", 1),
        told("a", 0, first=1),
        told("b", 1),
        told("b", 1),
        told("c", 0),
        told("c", 0, first=2),
    ]
    found = signal_metrics(step)
    assert (found["groups"], found["mixed_groups"]) == (3, 1)
    assert (found["passed_groups"], found["failed_groups"]) == (1, 1)
    assert found["unique_rollouts"] == pytest.approx((1 + 0.5 + 1) / 3)
    credits = credit_step(Grpo(GRPOOptions()), step)
    credit = outcome_metrics(step, credits)
    assert (credit["credit/groups"], credit["credit/effective_groups"]) == (1, 1)
    assert credit["credit/tokens"] == 2 * base().sampled_tokens
    assert taught({**found, **credit}) == "1 of 3 groups teach"
    flat = outcome_metrics(step[2:], credits[2:])
    assert (flat["credit/groups"], flat["credit/effective_groups"], flat["credit/tokens"]) == (0, 0, 0)


def test_an_entropy_that_the_sampler_stated_is_exact_and_any_other_estimated():
    exact = signal_metrics([told("a", 1, entropy=0.25), told("a", 0, entropy=0.75)])
    assert (exact["entropy"], exact["entropy/exact"]) == (0.5, 1)
    assert (exact["entropy/turn_low"], exact["entropy/turn_high"]) == (0.25, 0.75)
    estimated = signal_metrics([told("a", 1)])
    drawn = np.concatenate([turn.logprobs for turn in base().turns])
    assert (estimated["entropy"], estimated["entropy/exact"]) == (pytest.approx(-drawn.mean()), 0)


def test_a_step_without_tokens_has_no_figures():
    assert signal_metrics([]) == {}
    assert starving(1, {}, Signal()) == ""
    assert taught({"groups": 4.0}) == ""


def figures(teach: int, *, entropy: float = 0.6, success: float = 0.5, passed: int = 0, failed: int = 0):
    return {
        "groups": 64.0,
        "credit/groups": float(teach),
        "entropy": entropy,
        "success": success,
        "passed_groups": float(passed),
        "failed_groups": float(failed),
    }


def said(steps) -> list[str]:
    signal = Signal()
    lines = [starving(number, each, signal) for number, each in enumerate(steps, 1)]
    return [line for line in lines if line]


@pytest.mark.parametrize(
    ("lean", "cause"),
    [
        (figures(2, entropy=0.02, success=0.85, passed=55, failed=7), "filter.dynamic=on"),
        (figures(2, entropy=0.02, success=0.3, passed=2, failed=60), "a lower optim.lr and larger groups"),
        (figures(2, success=0.26, passed=2, failed=60), "nearly all rollouts fail"),
        (figures(2, success=0.95, passed=60, failed=2), "nearly all rollouts pass"),
        (figures(0, success=0.05, failed=64), "success 0.05, best before 0.50"),
    ],
)
def test_a_run_that_starves_names_the_cause_once(lean, cause):
    lines = said([figures(40, failed=12, passed=12), *[lean] * 16])
    assert len(lines) == 1
    assert cause in lines[0]
    assert lines[0].startswith(("step 2: ", "step 9: "))


def test_a_run_that_learns_says_nothing():
    assert said([figures(40)] * 20) == []
    assert said([figures(40), *[figures(2)] * 7, figures(9)] * 5) == []
    solved = figures(8, entropy=0.01, success=0.97, passed=55)
    assert said([figures(40), *[solved] * 9]) == []


def test_a_collapse_is_said_at_once():
    (line,) = said([figures(40), figures(20, entropy=0.05, success=0.6, passed=20, failed=24)])
    assert line.startswith("step 2: the run starves: 20 of 64 groups teach (20 pass and 24 fail as a whole)")
    assert "entropy 0.050 nats per token, 0.600 at first" in line


def test_updates_that_tear_the_policy_about_are_said_in_three_steps():
    torn = [{**figures(20), "kl/k3": kl} for kl in (0.06, 0.005, 0.05, 0.01)]
    (line,) = said(torn)
    assert line.startswith("step 3: the run starves: 20 of 64 groups teach")
    assert "move the policy by 0.04 nats per token" in line
    assert "lower optim.lr" in line
    assert said([{**each, "credit/groups": 40.0} for each in torn]) == []
    assert said([{**each, "lag/max": 2.0} for each in torn]) == []
    assert said([{**each, "kl/k3": each["kl/k3"] / 2} for each in torn]) == []


def test_a_planted_starving_run_is_named_by_itself_within_ten_steps(tmp_path):
    """A learning rate ten times too high, groups of two."""
    config = config_of(
        steps=10,
        optim={"lr": 3e-2, "minibatches": 4},
        rollout={"groups_per_step": 16, "group_size": 2},
        algo_options={"baseline": "leave_one_out"},
        anchors={"scheduler": "none", "inject": 0, "inject_gate": "dry", "inject_until": 0.5},
    )
    _, lines = local_run(tmp_path, config, kind=LocalFleet)
    assert sum("the run starves" in line for line in lines) == 1
