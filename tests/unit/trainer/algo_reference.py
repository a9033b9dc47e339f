"""Small trajectories and slow, obvious NumPy references for the algorithm tests.

Every completion token has an id of its own, so a table indexed by token id *is* a policy's log-probabilities, whatever
the rows look like, and a gradient with respect to the table is a gradient per token. Ids below `CONTEXT` are prompts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import count
from typing import Any

import numpy as np
import torch

from agent_runtime.types import RolloutFailure, Start, StopReason, Trajectory, Turn
from trainer.algo.base import Credit, NeedsCritic, credit_step
from trainer.data.batch import TrainBatch
from trainer.data.build import build_batch

CONTEXT = 5
TABLE = 400
BUDGET = 50
REFERENCE = -1.0 - 0.5 * np.sin(np.arange(TABLE))
"""Log-probabilities of the frozen reference policy by token id."""
ENGINES = 0.5 * np.sin(3.0 * np.arange(TABLE))
"""log pi_old - log mu by token id: no other policy's, so whoever takes the wrong one is noticed."""
OLD_VALUES = 0.4 * np.sin(3 * np.arange(TABLE))
"""What a critic said as the updates began, by the id of the token that opens the turn."""
VALUES = OLD_VALUES + 0.3 * np.cos(np.arange(TABLE))
"""What it says now."""


def trajectory(
    name: str,
    lengths: Sequence[int],
    reward: float,
    *,
    ids: Any,
    group: str = "g",
    expert: bool = False,
    failed: bool = False,
    windowed: bool = False,
    parents: Sequence[int | None] | None = None,
    turn_rewards: Sequence[float] | None = None,
    mu: np.ndarray | None = None,
) -> Trajectory:
    """Build a trajectory whose turn k samples `lengths[k]` fresh token ids."""
    turns = []
    for k, length in enumerate(lengths):
        completion = np.array([next(ids) for _ in range(length)], np.int32)
        context = np.arange(1, 2 + (k % (CONTEXT - 1)), dtype=np.int32)
        parent = None if windowed or k == 0 else k - 1
        turns.append(
            Turn(
                index=k,
                parent=parent if parents is None else parents[k],
                context_ids=context,
                completion_ids=completion,
                logprobs=np.full(length, np.nan, np.float32)
                if expert or mu is None
                else mu[completion].astype(np.float32),
                finish_reason="expert" if expert else "stop",
                policy_version=-1 if expert else 3 + k,
            )
        )
    n = len(turns)
    return Trajectory(
        id=name,
        env="toy@1",
        params_json="{}",
        task_id="t",
        group_id=group,
        index=0,
        seed=0,
        start=Start(0),
        first_observation="",
        turns=tuple(turns),
        actions=("a",) * n,
        observations=("o",) * n,
        observation_hashes=(b"",) * n,
        turn_rewards=tuple(turn_rewards) if turn_rewards is not None else (0.0,) * n,
        illegal_actions=0,
        reward=float("nan") if failed else reward,
        passed=reward > 0,
        stop_reason=StopReason.FAILED if failed else StopReason.TERMINATED,
        failure=RolloutFailure("policy", "gone", 1) if failed else None,
    )


def ragged_group(mu: np.ndarray, *, experts: bool = True) -> list[Trajectory]:
    """Return a group with every shape that has broken a batch: empty turns, forks, windows, failures, experts."""
    ids = count(CONTEXT + 1)
    rewards = [0.25, -0.5, 0.0, 1.0]
    group = [
        trajectory("long", [3, 1, 4, 2], 1.0, ids=ids, mu=mu, turn_rewards=rewards),
        trajectory("windowed", [2, 5, 1], 0.0, ids=ids, mu=mu, windowed=True, turn_rewards=[0.0, 2.0, 0.0]),
        trajectory("broken", [2, 2], 0.0, ids=ids, mu=mu, failed=True),
        trajectory("one token", [1], 0.5, ids=ids, mu=mu, turn_rewards=[-1.0]),
        trajectory("empty turn", [2, 0, 3], 0.0, ids=ids, mu=mu, turn_rewards=[0.0, 0.5, 0.0]),
        trajectory("forked", [2, 3, 1, 2, 2], 2.0, ids=ids, mu=mu, parents=[None, 0, 0, 2, 1]),
        trajectory("loser", [4, 4], -1.0, ids=ids, mu=mu),
    ]
    if experts:
        group += [
            trajectory("expert", [2, 3, 1], 1.0, ids=ids, expert=True),
            trajectory("failed expert", [2, 2], 0.0, ids=ids, expert=True, windowed=True),
            trajectory("windowed expert", [1, 4], 1.0, ids=ids, expert=True, windowed=True),
        ]
    return group


def tables(seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return log-probabilities mu, prox, pi of every token id, all different, ratios between about 1/4 and 4."""
    rng = np.random.default_rng(seed)
    mu = -rng.uniform(0.2, 2.5, TABLE).astype(np.float32).astype(np.float64)
    prox = mu + rng.normal(0.0, 0.6, TABLE)
    return mu, prox, prox + rng.normal(0.0, 0.4, TABLE)


def learners(group: Sequence[Trajectory]) -> list[Trajectory]:
    return [t for t in group if t.failure is None and not t.is_expert]


def winners(group: Sequence[Trajectory]) -> list[Trajectory]:
    return [t for t in group if t.is_expert and t.reward > 0]


def count_tokens(group: Sequence[Trajectory]) -> int:
    return sum(t.sampled_tokens for t in group)


def token_weight(group: Sequence[Trajectory], requested: int, one: Trajectory, aggregation: str) -> float:
    """Return what one token of trajectory `one` counts in the aggregate over the trajectories of `group`."""
    return {
        "constant": 1 / (requested * BUDGET),
        "token_mean": 1 / count_tokens(group),
        "seq_mean_token_sum": 1 / len(group),
        "seq_mean_token_mean": 1 / len(group) / max(one.sampled_tokens, 1),
    }[aggregation]


def imitation_reference(
    group: Sequence[Trajectory], pi: np.ndarray, gamma: float, aggregation: str
) -> tuple[float, np.ndarray]:
    """Return the imitation loss and its gradient by table entry."""
    loss, grad = 0.0, np.zeros(TABLE)
    requested = sum(t.is_expert for t in group)
    for t in winners(group):
        for k, turn in enumerate(t.turns):
            g = gamma ** (len(t.turns) - 1 - k) * t.reward
            g *= token_weight(winners(group), requested, t, aggregation)
            for token in turn.completion_ids:
                loss -= g * pi[token]
                grad[token] -= g
    return loss, grad


def baseline_reference(scores: Sequence[float], i: int, kind: str) -> float:
    if kind == "none":
        return 0.0
    peers = list(scores) if kind == "group_mean" else [s for j, s in enumerate(scores) if j != i]
    return sum(peers) / len(peers)


def ipa_reference(
    group: Sequence[Trajectory], mu: np.ndarray, prox: np.ndarray, pi: np.ndarray, o: Any
) -> tuple[float, np.ndarray]:
    """arXiv 2512.24873, Eqs. 7-10, with the ratio split: chunk by chunk, token by token."""
    loss, grad = imitation_reference(group, pi, o.gamma, "constant")
    loss, grad = o.lambda_il * loss, o.lambda_il * grad
    z = BUDGET * sum(not t.is_expert for t in group)
    finals = [t.reward if t.reward > 0 else o.reward_fail for t in learners(group)]
    extra = [sum(t.turn_rewards) if o.turn_rewards else 0.0 for t in learners(group)]
    scores = [f + e for f, e in zip(finals, extra, strict=True)]
    for i, t in enumerate(learners(group)):
        g = finals[i] - baseline_reference(scores, i, o.baseline)
        size = o.chunk_turns or len(t.turns)
        for first in reversed(range(0, len(t.turns), size)):
            turns = range(first, min(first + size, len(t.turns)))
            g = g if turns[-1] == len(t.turns) - 1 else o.gamma * g
            g += sum(t.turn_rewards[k] for k in turns) if o.turn_rewards else 0.0
            c = np.concatenate([t.turns[k].completion_ids for k in turns])
            old = mu if o.behaviour == "stored" else mu + ENGINES
            rho, compared = (
                np.exp(np.mean((new - base)[c])) if len(c) else 1
                for new, base in ((pi, old), (old, mu) if o.behaviour == "paper" else (prox, old))
            )
            weight = min(max(rho, 0), 1) if t.reward <= 0 or g < 0 else 1.0
            weight *= o.neg_weight if t.reward <= 0 else 1.0
            weight = weight if o.mask_low <= compared <= o.mask_high else 0.0
            for token in c:
                loss -= o.lambda_rl * weight * g * pi[token] / z
                grad[token] -= o.lambda_rl * weight * g / z
    return loss, grad


def bc_reference(
    group: Sequence[Trajectory], _mu: np.ndarray, _prox: np.ndarray, pi: np.ndarray, o: Any
) -> tuple[float, np.ndarray]:
    return imitation_reference(group, pi, 1.0, o.aggregation)


def values_of(group: Sequence[Trajectory]) -> list[np.ndarray]:
    """Return what the critic said of every state, NaN where a turn has no token; the last is known of everybody."""
    return [
        np.array(
            [OLD_VALUES[turn.completion_ids[0]] if len(turn.completion_ids) else np.nan for turn in t.turns]
            + [0.3 + 0.02 * len(t.id)]
        )
        for t in group
    ]


def credited(algorithm: Any, group: Sequence[Trajectory]) -> list[Credit]:
    """Return the credit of a step, under the planted values if the algorithm has a critic."""
    return credit_step(algorithm, group, values_of(group) if isinstance(algorithm, NeedsCritic) else None)


def batch_for(
    algorithm: Any, group: Sequence[Trajectory], prox: np.ndarray | None, build: Any = build_batch
) -> TrainBatch:
    """Return the group's batch with every policy's log-probabilities in it, and the critic's present values."""
    batch, _ = build(group, credited(algorithm, group), token_budget=BUDGET)
    if batch.returns_BT is not None:
        batch = replace(batch, values_BT=torch.tensor(VALUES)[batch.tokens_BT])
    if prox is not None:
        batch = replace(batch, prox_logprobs_BT=torch.tensor(prox)[batch.tokens_BT])
    return replace(
        batch,
        reference_logprobs_BT=torch.tensor(REFERENCE)[batch.tokens_BT],
        old_logprobs_BT=batch.rollout_logprobs_BT.double() + torch.tensor(ENGINES)[batch.tokens_BT],
    )


def in_float64(algorithm: Any, group: Sequence[Trajectory], batch: TrainBatch) -> TrainBatch:
    """Return the batch with credits as the algorithm gave them, not rounded to float32."""
    tables = np.zeros((4, TABLE))
    for t, credit in zip(group, credited(algorithm, group), strict=True):
        critic = (credit.return_K, credit.value_K)
        for turn in t.turns if not credit.dropped else ():
            tables[:, turn.completion_ids] = [
                [credit.advantage_K[turn.index]],
                [credit.imitation_K[turn.index]],
                *([0.0 if numbers is None else numbers[turn.index]] for numbers in critic),
            ]
    advantages_BT, imitation_BT, *critic = torch.tensor(tables)[:, batch.tokens_BT]
    if batch.returns_BT is not None:
        opens_BT = batch.opens_turn_BT >= 0
        returns_BT, values_BT = (torch.where(opens_BT, numbers_BT, 0) for numbers_BT in critic)
        batch = replace(batch, returns_BT=returns_BT, old_values_BT=values_BT)
    return replace(
        batch,
        advantages_BT=torch.where(batch.loss_mask_BT, advantages_BT, 0),
        imitation_BT=torch.where(batch.imitation_BT != 0, imitation_BT, 0),
    )


def differentiated(algorithm: Any, batch: TrainBatch, pi: np.ndarray) -> tuple[float, np.ndarray]:
    """Return the loss and its gradient by table entry. Prompt entries are NaN."""
    poisoned = pi.copy()
    poisoned[:CONTEXT] = np.nan
    table = torch.tensor(poisoned, requires_grad=True)
    output = algorithm.loss(batch, table[batch.tokens_BT])
    output.loss.backward()
    return output.loss.item(), table.grad.numpy()


def computed(
    algorithm: Any,
    group: Sequence[Trajectory],
    prox: np.ndarray | None,
    pi: np.ndarray,
    build: Any = build_batch,
) -> tuple[float, np.ndarray]:
    """Return the loss and its gradient by table entry, through credit, batch and autograd."""
    return differentiated(algorithm, batch_for(algorithm, group, prox, build), pi)


def check(
    algorithm: Any, reference: Any, *, build: Any = build_batch, group: Sequence[Trajectory] | None = None
) -> None:
    """Assert that loss and gradient agree with the reference on the ragged group."""
    mu, prox, pi = tables()
    group = ragged_group(mu) if group is None else group
    loss, grad = computed(algorithm, group, prox, pi, build)
    wanted_loss, wanted_grad = reference(group, mu, prox, pi, algorithm.options)
    assert np.abs(wanted_grad).max() > 1e-4
    np.testing.assert_allclose(loss, wanted_loss, rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(grad, wanted_grad, rtol=1e-6, atol=1e-9)
