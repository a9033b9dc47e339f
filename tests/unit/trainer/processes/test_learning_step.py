"""The learner goes by the step that learns, whatever steps its rollouts were planned for."""

from __future__ import annotations

from dataclasses import replace

import pytest
from algo_reference import tables
from family_reference import family_group
from local_fleet import config_of

from agent_runtime.store import encode
from ale.replay.tokens import learned_in
from trainer.processes.learner import Learner
from trainer.scheduler.journal import JOURNAL, Journal


def learner(**settings):
    made = Learner(config_of(algo="grpo", anchors={"inject": 0}, **settings))
    made.ready()
    made.publish(0)
    return made


def rollouts(planned):
    return [replace(t, policy_step=planned) for t in family_group(tables()[0], experts=False)]


def update(one, planned, step):
    return one.update([encode(t) for t in rollouts(planned)], [], lr=1e-3, step=step)


@pytest.mark.parametrize("planned", [1, 9])
def test_what_moves_with_the_steps_goes_by_the_learning_step(planned):
    for step, positives_only, coef in ((4, True, 0.16), (6, False, 0)):
        metrics = update(learner(steps=10, curriculum={"positive_only": 0.5}), planned, step)
        assert ("tokens/masked/positives_only" in metrics) is positives_only
        held = update(learner(steps=10, explore={"kl_coef": 0.4, "kl_until": 0.5}), planned, step)
        assert held.get("explore/kl_coef", 0) == pytest.approx(coef)


def test_earlier_successes_are_drawn_and_leave_by_the_learning_step():
    def second(planned, step):
        one = learner(reuse={"trajectories": 2, "max_lag": 4})
        update(one, 1, 1)
        return update(one, planned, step)

    assert second(9, 2)["tokens/reused"] > 0
    assert second(9, 2) == second(1, 2)
    assert second(1, 9)["tokens/reused"] == 0


def test_the_step_that_learned_a_rollout_is_the_journal_s_to_say(tmp_path):
    one, other, aside = (replace(t, id=name) for t, name in zip(rollouts(3), "abc", strict=False))
    assert learned_in(tmp_path, one) == 3
    for done, step in ((None, 4), (3, 5)):
        journal = Journal(tmp_path, done=done)
        journal.begin()
        journal.consumed(step, ["a"], ["c"])
        journal.close()
    assert (tmp_path / JOURNAL).exists()
    assert [learned_in(tmp_path, t) for t in (one, other, aside)] == [5, 3, 5]
