"""From outcomes to numbers per turn: chunk returns, group baselines, and who learns at all.

NumPy only. It never sees a token or a tensor.

A group is one task at one anchor by construction (`Trajectory.group_id`), so "group mean" and "mean per
(task, anchor)" are the same baseline and only the former is offered.

Shapes: G trajectories of a group, K turns, C chunks of one trajectory.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from agent_runtime.types import Trajectory, TurnLabel
from rock_env.env import observation_hash
from trainer.algo.base import Credit

__all__ = [
    "STD_EPSILON",
    "Baseline",
    "advantages_of",
    "baselines",
    "chunk_of_turn",
    "chunk_returns",
    "credit_group",
    "faulty_turns",
    "mean_of",
    "outcome_advantages",
    "outcomes",
    "spread_over_turns",
    "state_advantages",
    "state_ids",
    "turn_returns",
    "whitened",
]

Baseline = Literal["none", "group_mean", "leave_one_out"]

Floats = NDArray[np.float64]

STD_EPSILON = 1e-6
"""Added to standard deviations before dividing, as in GRPO's reference implementations."""


def chunk_of_turn(turns: int, chunk_turns: int, alone: Sequence[int] = ()) -> NDArray[np.int64]:
    """Return the chunk each turn belongs to: `chunk_turns` consecutive turns each, 0 for one chunk in all.

    The turns `alone` are chunks of their own, unless all is one.
    """
    if not chunk_turns or not alone:
        return np.arange(turns, dtype=np.int64) // (chunk_turns or max(turns, 1))
    ends, chunk_K = frozenset(alone), np.zeros(turns, np.int64)
    chunk, room = -1, 0
    for turn in range(turns):
        if room == 0 or turn in ends:
            chunk, room = chunk + 1, chunk_turns
        chunk_K[turn] = chunk
        room = 0 if turn in ends else room - 1
    return chunk_K


def chunk_returns(final: float, chunks: int, gamma: float, rewards_C: Floats | None = None) -> Floats:
    """Return G per chunk: `G_k = gamma^(K-k) R_final` (arXiv 2512.24873, Eq. 7).

    With `rewards_C`: `G_k = r_k + gamma G_(k+1)`, `G_K = r_K + R_final`.
    """
    steps = np.arange(chunks)
    returns: Floats = final * gamma ** steps[::-1].astype(np.float64)
    if rewards_C is None:
        return returns
    return returns + _discounted(rewards_C, gamma)


def _discounted(values_C: Floats, gamma: float) -> Floats:
    """Return the sum over j >= k of `gamma^(j-k) values_j`, for every k; of vectors, if the entries are."""
    steps = np.arange(len(values_C))
    ahead = steps[None, :] - steps[:, None]
    discount = np.where(ahead >= 0, np.float64(gamma) ** np.maximum(ahead, 0), 0.0)
    summed: Floats = discount @ values_C
    return summed


def baselines(scores_G: Floats, kind: Baseline) -> Floats:
    """Return what to subtract from each score: 0, the group's mean, or the mean of the others.

    A score without peers is its own baseline under both means: a lone survivor gives no signal.
    """
    if kind == "none" or len(scores_G) == 0:
        return np.zeros_like(scores_G)
    if kind == "group_mean" or scores_G.min() == scores_G.max():
        return np.full_like(scores_G, mean_of(scores_G))
    others: Floats = (scores_G.sum() - scores_G) / (len(scores_G) - 1)
    return others


def mean_of(values_N: Floats, weights_N: Floats | None = None) -> float:
    """Return the mean of at least one value; that very value where all are equal, so that rounding makes no credit."""
    equal = values_N.min() == values_N.max()
    return float(values_N[0] if equal else np.average(values_N, weights=weights_N))


def turn_returns(learners: Sequence[Trajectory], gamma: float, *, turn_rewards: bool) -> list[Floats]:
    """Return each trajectory's `G_k` per turn, as `chunk_returns` of its outcome, with its turns' rewards if asked."""
    return [
        chunk_returns(
            t.reward, len(t.turns), gamma, np.asarray(t.turn_rewards, np.float64) if turn_rewards else None
        )
        for t in learners
    ]


def outcome_advantages(
    learners: Sequence[Trajectory],
    baseline: Baseline,
    *,
    normalize_std: bool = False,
    turn_rewards: bool = False,
) -> list[Floats]:
    """Return per turn the outcome less its baseline, over the group's standard deviation (of the sample) if asked."""
    scores_G = outcomes(learners, turn_rewards=turn_rewards)
    return spread_over_turns(learners, advantages_of(scores_G, baseline, normalize_std=normalize_std))


def outcomes(learners: Sequence[Trajectory], *, turn_rewards: bool = False) -> Floats:
    """Return the reward of each trajectory, with those of its turns if asked."""
    return np.array([t.reward + sum(t.turn_rewards) * turn_rewards for t in learners], np.float64)


def advantages_of(scores_G: Floats, baseline: Baseline, *, normalize_std: bool = False) -> Floats:
    """Return scores less their baseline, over `std + 1e-6` (n - 1) if asked; a score alone in its group is not scaled."""
    advantages_G: Floats = scores_G - baselines(scores_G, baseline)
    if normalize_std and len(scores_G) > 1:
        advantages_G = advantages_G / (scores_G.std(ddof=1) + STD_EPSILON)
    return advantages_G


def whitened(trajectories: Sequence[Trajectory], credits: Sequence[Credit]) -> list[Credit]:
    """Return the credits less their mean, over `std + 1e-6` (n), taken over every token that the learners sampled.

    Tokens count once each; dropped trajectories and experts are no part of it and stay as they are.
    """
    learns = [not c.dropped and not t.is_expert for t, c in zip(trajectories, credits, strict=True)]
    kept = [
        pair for pair, learn in zip(zip(trajectories, credits, strict=True), learns, strict=True) if learn
    ]
    tokens_K = np.array([len(turn.completion_ids) for t, _ in kept for turn in t.turns], np.float64)
    if not tokens_K.sum():
        return list(credits)
    values_K = np.concatenate([credit.advantage_K for _, credit in kept])
    mean = mean_of(values_K, tokens_K)
    std = np.sqrt(np.average((values_K - mean) ** 2, weights=tokens_K))
    return [
        replace(credit, advantage_K=(credit.advantage_K - mean) / (std + STD_EPSILON)) if learn else credit
        for credit, learn in zip(credits, learns, strict=True)
    ]


def spread_over_turns(learners: Sequence[Trajectory], values_G: Floats) -> list[Floats]:
    """Return each trajectory's value once per turn."""
    return [np.full(len(t.turns), value) for t, value in zip(learners, values_G, strict=True)]


def state_ids(group: Sequence[Trajectory], size: int = 1) -> list[NDArray[np.int64]]:
    """Return which state each chunk of `size` turns begins at (0: of all): the same number where observations are the same.

    Observations are compared by their recorded hashes (GiGPO's anchor states, arXiv 2505.10978, section 4.2). A turn that
    asks nothing of the environment leaves its state as it is; being asked for a summary is a state apart from acting in it,
    and so are thinking for as long as was allowed and answering after that.
    """
    ids: dict[tuple[bytes, TurnLabel | None], int] = {}
    states = []
    for t in group:
        seen = (observation_hash(t.first_observation), *(t.observation_hashes[turn] for turn in t.env_turns))
        chunk_K = chunk_of_turn(len(t.turns), size, t.internal_turns)
        before = t.env_steps_before
        keys = [
            (seen[before[turn]], _apart(t, turn))
            for turn in np.flatnonzero(np.diff(chunk_K, prepend=-1)).tolist()
        ]
        states.append(np.array([ids.setdefault(key, len(ids)) for key in keys], np.int64))
    return states


def _apart(t: Trajectory, turn: int) -> TurnLabel | None:
    """Return what a turn does where that is not acting by what it sees: SUMMARY, THOUGHT, MAIN after a thought."""
    if (label := t.label(turn)) in (TurnLabel.SUMMARY, TurnLabel.THOUGHT):
        return label
    parent = t.turns[turn].parent
    return TurnLabel.MAIN if parent is not None and t.label(parent) is TurnLabel.THOUGHT else None


def state_advantages(
    group: Sequence[Trajectory], returns: Sequence[Floats], *, gamma: float, trace: float, size: int
) -> list[Floats]:
    """Return each chunk's advantage over V(s), the value of the observation s that the chunk begins at.

    `returns` are the chunk returns G; chunks have `size` turns (0: all). The advantage is the sum over j of `(gamma trace)^j
    delta_(k+j)`, with `delta_k = r_k + gamma V(s_(k+1)) - V(s_k)` (generalised advantage estimation, arXiv 1506.02438,
    Eq. 16), and V is the one table under which every state's advantages add up to zero (least-squares temporal
    differences, Boyan 2002). At `trace` 1 V is the mean return of the group's visits and the advantage `G_k - V(s_k)`,
    GiGPO's (arXiv 2505.10978, section 4.2); lower values trust what the group's other rollouts met after the same
    states: less variance, and exact in the limit only if the observation is the state. A state visited once is its own
    baseline. The work is cubic in the number of distinct states of a group.
    """
    states = state_ids(group, size)
    count = max((int(state_C.max(initial=-1)) + 1 for state_C in states), default=0)
    system_SS, target_S = np.zeros((count, count)), np.zeros(count)
    sides = []
    for state_C, return_C in zip(states, returns, strict=True):
        steps = np.arange(len(state_C))
        value_CS = np.zeros((len(state_C), count))  # the part of delta that depends on V, negated
        value_CS[steps, state_C] = 1.0
        value_CS[steps[:-1], state_C[1:]] -= gamma
        reward_C = return_C - gamma * np.append(return_C[1:], 0.0)
        side = _discounted(reward_C, gamma * trace), _discounted(value_CS, gamma * trace)
        np.add.at(target_S, state_C, side[0])
        np.add.at(system_SS, state_C, side[1])
        sides.append(side)
    value_S = np.linalg.solve(system_SS, target_S)
    return [reward_C - value_CS @ value_S for reward_C, value_CS in sides]


def credit_group(
    group: Sequence[Trajectory],
    advantages: Callable[[Sequence[Trajectory]], list[Floats]],
    *,
    imitation_gamma: float = 1.0,
    chunk_turns: int = 1,
    every_token: bool = False,
) -> list[Credit]:
    """Return a credit per trajectory, asking `advantages` (one array per turn) only for those that learn.

    Failed rollouts and experts leave the group before any baseline is computed. An expert's turns are
    weighted `gamma^(K-k) R`; an expert that earned nothing is dropped. Turns with a fault (a tool call that failed,
    an edit taken back later) weigh 0: they are context, never an example (docs/ipa.md section 5). `chunk_turns` turns make a
    chunk (0: all); `every_token` says that tokens without credit have a gradient nonetheless.
    """
    learners = [t for t in group if t.has_reward and not t.is_expert]
    learned = iter(advantages(learners))
    credits: list[Credit] = []
    for trajectory in group:
        zeros = np.zeros(len(trajectory.turns))
        positive = trajectory.has_reward and trajectory.reward > 0
        if reason := trajectory.why_no_reward:
            credits.append(Credit(zeros, False, zeros, reason))
        elif trajectory.is_expert:
            weights = chunk_returns(trajectory.reward if positive else 0.0, len(zeros), imitation_gamma)
            faulty = faulty_turns(trajectory)
            weights[list(faulty)] = 0.0
            reason = "" if positive else "expert without success"
            credits.append(Credit(zeros, positive, weights, reason, masked=faulty))
        else:
            chunk_K = chunk_of_turn(len(zeros), chunk_turns, trajectory.internal_turns)
            credits.append(Credit(next(learned), positive, zeros, chunk_K=chunk_K, every_token=every_token))
    return credits


def faulty_turns(trajectory: Trajectory) -> dict[int, str]:
    """Return the turns with a fault, as the token ledger wants to be told of those that are left out.

    A thought that was cut off shares the fault of the answer that it led to.
    """
    faulty = [turn for turn in range(len(trajectory.turns)) if trajectory.is_faulty(turn)]
    led = [trajectory.turns[turn].parent for turn in faulty]
    thoughts = [turn for turn in led if turn is not None and trajectory.label(turn) is TurnLabel.THOUGHT]
    return dict.fromkeys(sorted((*faulty, *thoughts)), "faulty turn")
