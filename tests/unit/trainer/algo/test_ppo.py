"""PPO and its critic: what the advantages reduce to, which states are asked for, and a run that learns both and resumes."""

from __future__ import annotations

from dataclasses import replace
from itertools import count
from pathlib import Path

import numpy as np
import pytest
import torch
from algo_cases import SPECS
from algo_reference import (
    VALUES,
    batch_for,
    differentiated,
    in_float64,
    learners,
    tables,
    trajectory,
    values_of,
)
from family_reference import family_group, value_reference
from local_fleet import Listening, LocalFleet, config_of
from safetensors.torch import load_file

from agent_runtime.agents.conversation import Prompt
from agent_runtime.store import encode
from agent_runtime.types import StopReason, Trajectory, TurnLabel
from trainer.algo.base import NeedsCritic, credit_step
from trainer.algo.terms.critic import gae
from trainer.algo.terms.monitors import critic_metrics
from trainer.config import CurriculumOptions, OptimOptions, ReuseOptions, TrainConfig
from trainer.data.build import build_batch, microbatches, split_rows
from trainer.data.values import states_of, values_per_turn, with_next_state
from trainer.errors import BatchError, ConfigError
from trainer.learners.torch_train import STATE_FILE
from trainer.processes import learner as learner_process
from trainer.processes.learner import Learner
from trainer.rollout.starts import Injection
from trainer.run import Run

INF = float("inf")
PLAIN = {"gamma": 1.0, "trace": 1.0, "whiten": False, "aggregation": "constant", "dual_clip": INF}


def made(name="ppo", **options):
    spec, _ = SPECS[name]
    return spec.build(spec.options(**options))


def ended(group):
    """Return the group as if no episode had been cut off, and without negative outcomes."""
    return [
        t if t.failure else replace(t, stop_reason=StopReason.TERMINATED, reward=max(t.reward, 0.0))
        for t in group
    ]


def flat(group, value):
    return [np.full(len(t.turns) + 1, value) for t in group]


def policy_gradient(algorithm, group, values, pi):
    batch, _ = build_batch(group, credit_step(algorithm, group, values), token_budget=50)
    return differentiated(algorithm, batch, pi)[1]


# -- what it reduces to ---------------------------------------------------------------------------------------


def test_with_value_0_and_ratio_1_it_is_reinforce():
    mu, _, _ = tables()
    group = ended(family_group(mu))
    wanted = policy_gradient(made("reinforce", baseline="none"), group, None, mu)
    assert wanted.any()
    for values in (None, flat(group, 0.0)):
        np.testing.assert_allclose(
            policy_gradient(made(**PLAIN), group, values, mu), wanted, rtol=1e-5, atol=1e-9
        )


def test_a_constant_value_is_a_baseline():
    """The critic that says the group's mean outcome gives REINFORCE with that baseline."""
    mu, _, _ = tables()
    group = [t for t in ended(family_group(mu)) if t.group_id == "g"]
    mean = np.mean([t.reward for t in learners(group)])
    wanted = policy_gradient(made("reinforce", baseline="group_mean"), group, None, mu)
    got = policy_gradient(made(**PLAIN), group, flat(group, mean), mu)
    np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-8)
    assert np.abs(got - policy_gradient(made(**PLAIN), group, None, mu)).max() > 1e-3


def test_at_ratio_1_it_is_the_policy_gradient_of_its_advantages():
    """Minus A over the divisor at every token, whatever the clip."""
    mu, _, _ = tables()
    group = family_group(mu, experts=False)
    algorithm = made(aggregation="constant", clip_low=0.0, clip_high=0.0)
    credits = credit_step(algorithm, group, values_of(group))
    grad = policy_gradient(algorithm, group, values_of(group), mu)
    for t, credit in zip(group, credits, strict=True):
        for turn in t.turns if not credit.dropped else ():
            expected = -credit.advantage_K[turn.index] / (50 * len(group))
            # At ratio exactly 1 both branches of the minimum are the same, and each gets half of the gradient.
            np.testing.assert_allclose(grad[turn.completion_ids], expected, rtol=1e-5, atol=1e-9)


@pytest.mark.parametrize("trace", [0.0, 0.5, 1.0])
def test_the_true_values_leave_no_advantage(trace):
    """Under the values that the rewards really lead to, every temporal difference is 0 and so is what is learned."""
    rewards = np.array([0.5, 0.0, -1.0, 2.0])
    values = np.zeros(5)
    for k in reversed(range(4)):
        values[k] = rewards[k] + 0.9 * values[k + 1]
    np.testing.assert_allclose(gae(rewards, values, gamma=0.9, trace=trace), 0, atol=1e-12)
    values[4] = 1.0  # the episode was cut off where more was to come
    assert gae(rewards, values, gamma=0.9, trace=trace)[3] == pytest.approx(0.9)


def test_a_turn_without_a_token_is_looked_through():
    """Its reward reaches the decision before it, discounted; its value, whatever it would be, reaches nobody."""
    whole = gae(np.array([1.0, 4.0, 2.0]), np.array([0.3, np.nan, 0.2, 0.0]), gamma=0.5, trace=0.7)
    joined = gae(np.array([1.0 + 0.5 * 4.0]), np.array([0.3, 0.2]), gamma=0.25, trace=0.7)
    last = 2.0 - 0.2
    assert whole[1] == 0
    assert whole[2] == pytest.approx(last)
    assert whole[0] == pytest.approx(1.0 + 0.5 * 4.0 + 0.25 * 0.2 - 0.3 + 0.25 * 0.7 * last)
    assert joined[0] == pytest.approx(whole[0] - 0.25 * 0.7 * last)


# -- cut episodes ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("stop", "reward", "options", "outcome"),
    [
        (StopReason.TERMINATED, 0.0, {}, 0.0),
        (StopReason.TRUNCATED, 0.0, {}, 0.5 * 0.9),
        (StopReason.MAX_TURNS, 0.0, {}, 0.5 * 0.9),
        (StopReason.MAX_TURNS, -1.0, {}, -1.0),
        (StopReason.TRUNCATED, 0.0, {"bootstrap": False}, 0.0),
        (StopReason.TRUNCATED, 1.0, {}, 1.0),
        (StopReason.CONTEXT_FULL, 0.0, {}, 0.0),
    ],
)
def test_a_cut_episode_that_earned_nothing_ends_in_the_value_of_where_it_stood(
    stop, reward, options, outcome
):
    one = replace(trajectory("a", [2, 2], reward, ids=count(9), mu=tables()[0]), stop_reason=stop)
    algorithm = made(gamma=0.9, trace=1.0, whiten=False, **options)
    (credit,) = credit_step(algorithm, [one], [np.array([0.1, 0.2, 0.5])])
    np.testing.assert_allclose(credit.return_K, [0.9 * outcome, outcome])
    np.testing.assert_allclose(credit.advantage_K, [0.9 * outcome - 0.1, outcome - 0.2])


def test_a_cut_episode_whose_next_state_fits_no_context_ended_there():
    one = replace(trajectory("a", [2], 0.0, ids=count(9), mu=tables()[0]), stop_reason=StopReason.TRUNCATED)
    (credit,) = credit_step(made(whiten=False), [one], [np.array([0.1, np.nan])])
    np.testing.assert_allclose(credit.return_K, [0.0])


# -- the loss -------------------------------------------------------------------------------------------------


def value_gradient(algorithm, batch, pi):
    table = torch.tensor(VALUES, requires_grad=True)
    logprobs_BT = torch.tensor(pi)[batch.tokens_BT]
    algorithm.loss(replace(batch, values_BT=table[batch.tokens_BT]), logprobs_BT).loss.backward()
    return table.grad.numpy()


@pytest.mark.parametrize("options", [{}, {"value_clip": 0.02}, {"value_clip": INF}, {"whiten": False}])
def test_the_critics_gradient_equals_the_reference_and_adds_up_over_parts(options):
    mu, prox, pi = tables()
    algorithm, group = made(**options), family_group(mu)
    batch = in_float64(algorithm, group, batch_for(algorithm, group, prox))
    _, wanted = value_reference(group, algorithm.options)
    assert np.abs(wanted).max() > 1e-3
    np.testing.assert_allclose(value_gradient(algorithm, batch, pi), wanted, rtol=1e-12, atol=1e-12)
    parts = [part for half in split_rows(batch, 2) for part in microbatches(half, 40)]
    assert len(parts) > 2
    summed = sum(value_gradient(algorithm, part, pi) for part in parts)
    np.testing.assert_allclose(summed, wanted, rtol=1e-12, atol=1e-12)


def test_a_warm_up_moves_the_critic_and_the_imitation_only():
    mu, prox, pi = tables()
    algorithm, group = made(), family_group(mu)
    batch = batch_for(algorithm, group, prox)
    table, values = torch.tensor(pi, requires_grad=True), torch.tensor(VALUES, requires_grad=True)
    output = algorithm.warmup_loss(replace(batch, values_BT=values[batch.tokens_BT]), table[batch.tokens_BT])
    output.loss.backward()
    moved = {int(token) for token in table.grad.nonzero()}
    imitated = set(batch.tokens_BT[batch.imitation_BT != 0].tolist())
    assert moved == imitated != set()
    assert values.grad.any()
    assert torch.equal(output.masked["critic warm-up"], batch.loss_mask_BT)


@pytest.mark.parametrize("which", ["value_K", "return_K"])
def test_a_value_that_is_not_finite_is_refused(which):
    group = family_group(tables()[0])
    credits = credit_step(made(), group, values_of(group))
    credits[0] = replace(credits[0], **{which: np.array([INF, 0.0, 0.0, 0.0])})
    with pytest.raises(BatchError, match=f"{which} is not finite"):
        build_batch(group, credits, token_budget=1)


# -- which states ---------------------------------------------------------------------------------------------


def test_every_turn_of_a_learner_is_asked_about_once_and_gets_its_own_answer():
    """Forks, windows and empty turns included; experts, failures and states nobody needs have no value."""
    mu, _, _ = tables()
    group = family_group(mu)
    asked = [
        with_next_state(t, Prompt(len(t.turns) - 1, np.array([1, 2], np.int32), np.zeros(0, np.int32)))
        if t.id == "loser"
        else t
        for t in group
    ]
    batch = states_of(asked)
    opens_BT = batch.opens_turn_BT >= 0
    assert torch.equal(batch.loss_mask_BT, opens_BT)
    answers = values_per_turn([len(t.turns) for t in group], batch, batch.tokens_BT.float())
    for t, found in zip(group, answers, strict=True):
        learns = t.failure is None and not t.is_expert
        wanted = [
            float(turn.completion_ids[0]) if learns and len(turn.completion_ids) else np.nan
            for turn in t.turns
        ]
        np.testing.assert_array_equal(found, [*wanted, 0.0 if t.id == "loser" else np.nan])


def test_explained_variance_is_1_for_a_critic_that_knows_and_0_for_one_that_says_always_the_same():
    group = learners(family_group(tables()[0]))
    credits = credit_step(made(), group, values_of(group))
    targets = [credit.return_K for credit in credits]
    knows = [replace(c, value_K=target) for c, target in zip(credits, targets, strict=True)]
    same = [replace(c, value_K=np.full(len(target), 0.7)) for c, target in zip(credits, targets, strict=True)]
    assert critic_metrics(group, knows)["critic/explained_variance"] == pytest.approx(1.0)
    found = critic_metrics(group, same)
    assert found["critic/explained_variance"] == pytest.approx(0.0)
    assert found["critic/value_mean"] == pytest.approx(0.7)
    assert critic_metrics(group, credit_step(made("grpo"), group)) == {}


def test_what_is_known_of_equal_returns_is_not_reported():
    """Where every rollout succeeds at once all G are 1, up to the rounding of (1 - V) + V."""
    ids = count(9)
    group = [trajectory(str(n), [2], 1.0, ids=ids, mu=tables()[0]) for n in range(20)]
    values = [np.array([np.sin(n), np.nan]) for n in range(20)]
    credits = credit_step(made(), group, values)
    assert len({float(credit.return_K[0]) for credit in credits}) > 1
    found = critic_metrics(group, credits)
    assert found["critic/return_mean"] == pytest.approx(1.0)
    assert "critic/explained_variance" not in found


# -- the learner ----------------------------------------------------------------------------------------------


def learner(**options):
    config = TrainConfig(
        algo="ppo",
        algo_options=options,
        engine_options={"layers": 1, "width": 8, "heads": 1},
        optim=OptimOptions(minibatches=2),
    )
    one = Learner(config)
    one.ready()
    return one


def rollouts():
    return [encode(t) for t in family_group(tables()[0], experts=False)]


def bits(one):
    return {name: value.tobytes() for name, value in one.weights().items()}


def test_the_critic_learns_from_the_first_step_and_the_policy_after_the_warm_up():
    one = learner(value_warmup=2)
    before = bits(one)
    first = one.update(rollouts(), [], lr=1e-2, step=1)
    second = one.update(rollouts(), [], lr=1e-2, step=2)
    assert bits(one) == before
    assert first["critic/grad_norm"] > 0 == first["grad_norm"]
    assert first["tokens/trained"] == 0 < first["tokens/masked/critic_warm-up"]
    assert (first["critic/value_mean"], first["critic/explained_variance"]) == (0.0, 0.0)
    assert second["critic/value_mean"] != 0.0
    third = one.update(rollouts(), [], lr=1e-2, step=3)
    assert bits(one) != before
    assert third["tokens/trained"] == first["tokens/masked/critic_warm-up"]


def test_no_momentum_of_an_imitation_moves_the_policy_while_only_the_critic_learns():
    """The optimizer of the imitation goes on: a gradient of zeros would be an update by what it remembers."""
    one = learner(value_warmup=1)
    one._experts = {t.id: t for t in family_group(tables()[0]) if t.is_expert}
    one.imitate(lr=1e-2, batch_trajectories=1, seed=0)
    before = bits(one)
    first = one.update(rollouts(), [], lr=1e-2, step=1)
    assert bits(one) == before
    assert first["critic/grad_norm"] > 0
    one.update(rollouts(), [Injection("expert", (0, 1, 2), 1.0)], lr=1e-2, step=1)
    assert bits(one) != before


def test_what_is_not_learned_is_masked_by_its_reason_though_the_critic_reads_it():
    """Not trained, as under any other algorithm; and yet each of its turns teaches the critic."""
    one = learner()
    group = [replace(t, policy_step=1) for t in learners(family_group(tables()[0]))]
    lost = sum(t.sampled_tokens for t in group if t.reward <= 0)
    one._config = one._config.model_copy(update={"curriculum": CurriculumOptions(positive_only=1.0)})
    metrics = one.update([encode(t) for t in group], [], lr=1e-2)
    assert metrics["tokens/masked/positives_only"] == lost > 0
    assert metrics["tokens/trained"] == metrics["tokens/total"] - lost
    credits = [replace(c, advantage_K=0 * c.advantage_K) for c in credit_step(made(), group)]
    batch, _ = build_batch(group, credits, token_budget=1)
    assert int((batch.opens_turn_BT >= 0).sum()) == batch.counts.turns > 0


def test_with_one_update_nothing_is_clipped_not_even_what_is_learned_again():
    """V_old is the critic's as this batch began; one kept with a success would clip what it learned since."""
    one = Learner(
        TrainConfig(
            algo="ppo",
            algo_options={"value_lr": 0.1, "value_clip": 0.01},
            engine_options={"layers": 1, "width": 8, "heads": 1},
            reuse=ReuseOptions(trajectories=2),
        )
    )
    one.ready()
    # In these two a user's message is opened and never closed: the tiny model reads it in both directions, so that its
    # state depends on what is told of the turn.
    played = [t for t in family_group(tables()[0], experts=False) if t.id not in ("windowed", "loser")]
    for step in (1, 2, 3):
        group = [replace(t, policy_step=step, turns=aged(t, step - 1)) for t in played]
        metrics = one.update([encode(t) for t in group], [], lr=1e-3, step=step)
        assert metrics["critic/clipped_turns"] == 0
    assert metrics["tokens/reused"] > 0


def aged(t, version):
    return tuple(replace(turn, policy_version=version) for turn in t.turns)


def test_a_session_that_was_cut_off_has_no_known_next_prompt():
    """What a program of somebody else would have asked next is its own: an empty message of ours is no such state."""
    one = learner()
    cut = trajectory("a", [2, 2], 0.0, ids=count(9), mu=tables()[0])
    cut = replace(cut, stop_reason=StopReason.MAX_TURNS)
    assert len(one._with_next(cut).turns) == 3
    session = replace(cut, turn_labels=(TurnLabel.MAIN, TurnLabel.MAIN))
    assert one._with_next(session) is session


def test_the_critic_comes_to_know_the_returns():
    """As far as they can be known: the first turns of all these rollouts are the same state."""
    one = learner(value_warmup=100, trace=1.0, bootstrap=False)
    history = [one.update(rollouts(), [], lr=1e-3)["critic/explained_variance"] for _ in range(60)]
    assert history[0] == 0.0
    assert history[-1] > 0.3


def test_an_engine_without_a_critic_is_refused_by_name(monkeypatch):
    class Unable:
        """A train engine of somebody else's."""

    real = learner_process.learner_of

    def without(config):
        spec, options = real(config)
        return replace(spec, train=lambda *_: Unable()), options

    monkeypatch.setattr(learner_process, "learner_of", without)
    with pytest.raises(ConfigError, match=r"'ppo' needs a critic and the engine 'tiny' can have none"):
        learner()


def test_only_ppo_asks_for_a_critic():
    assert [name for name in SPECS if isinstance(made(name), NeedsCritic)] == ["ppo"]


# -- a run ----------------------------------------------------------------------------------------------------

CONFIG = config_of(algo="ppo", algo_options={"value_warmup": 1}, steps=3, agent={"system": True})


def first_wins(t: Trajectory) -> Trajectory:
    return replace(t, reward=1.0, passed=True) if t.index == 0 and t.failure is None else t


def play(folder: Path, *, steps: int, resume: bool) -> None:
    """Take `steps` steps with engines of their own, and leave a checkpoint behind as the last thing that is known."""
    fleet = LocalFleet(CONFIG, change=first_wins)
    with Run(CONFIG, folder, fleet, Listening(), resume=resume) as run:  # type: ignore[arg-type]
        if run.is_new:
            run.record_experts()
            run.warm_up()
        for _, step in zip(range(steps), run.remaining_steps(), strict=False):
            run.learn(run.batch(step))
            run.publish(step)
        run.save()


def test_a_run_that_is_taken_up_again_equals_one_that_was_never_interrupted(tmp_path):
    """Policy, critic and both optimizer states, to the bit; interrupted in the warm-up of the critic and behind it."""
    play(tmp_path / "whole", steps=3, resume=False)
    for steps, resume in ((1, False), (1, True), (1, True)):
        play(tmp_path / "parts", steps=steps, resume=resume)
    whole, parts = (
        load_file(tmp_path / name / "checkpoints" / "step-000003" / STATE_FILE) for name in ("whole", "parts")
    )
    assert whole.keys() == parts.keys()
    assert [name for name in whole if not torch.equal(whole[name], parts[name])] == []
    assert whole["model.critic.outer"].any()
    assert whole["exp_avg.critic.inner"].any()
