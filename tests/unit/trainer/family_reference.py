"""NumPy float64 references of the algorithm family: token by token, from the formulas, sharing no code with the trainer.

`policy_reference` is the frame they have in common (correction, KL term, aggregation, imitation); each algorithm adds its
advantages and its objective with the derivative worked out by hand.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from algo_reference import (
    OLD_VALUES,
    REFERENCE,
    TABLE,
    VALUES,
    imitation_reference,
    learners,
    ragged_group,
    token_weight,
    values_of,
)

from agent_runtime.types import StopReason, Trajectory
from rock_env.env import observation_hash

Tokens = np.ndarray
Objective = Callable[[Trajectory, float, int, np.ndarray], tuple[float, float]]
"""(trajectory, advantage, token, log pi_theta - log pi_old of all tokens) -> value, derivative by log pi_theta(token)."""


CUT = {
    "windowed": StopReason.MAX_TURNS,
    "one token": StopReason.TRUNCATED,
    "loser": StopReason.TRUNCATED,
    "empty turn": StopReason.CONTEXT_FULL,
}
"""How those ended that did not end by themselves."""


def family_group(mu: np.ndarray, *, experts: bool = True) -> list[Trajectory]:
    """Return the ragged trajectories as two groups that pass through a few shared states; some are cut off."""
    group = []
    for n, t in enumerate(ragged_group(mu, experts=experts)):
        seen = tuple(f"state {(k * (n + 1)) % 3}" for k in range(len(t.turns)))
        group.append(
            replace(
                t,
                group_id="gh"[n % 2],
                stop_reason=CUT.get(t.id, t.stop_reason),
                first_observation="start",
                observations=seen,
                observation_hashes=tuple(observation_hash(state) for state in seen),
            )
        )
    return group


def all_tokens(t: Trajectory) -> Tokens:
    return np.concatenate([turn.completion_ids for turn in t.turns])


def peers(group: Sequence[Trajectory], one: Trajectory) -> list[Trajectory]:
    return [t for t in learners(group) if t.group_id == one.group_id]


def correction_reference(o: Any, t: Trajectory, k: int, token: int, log_w: np.ndarray) -> float:
    name = getattr(o, "correction", "none")
    if name == "none":
        return 1.0
    kind, _, unit = name.partition("_")
    tokens = {"chunk": t.turns[k].completion_ids, "sequence": all_tokens(t)}.get(unit, np.array([token]))
    low = o.correction_low if kind in ("icepop", "geometric") else 0.0
    high = o.correction_high or {"tis": 2, "mis": 2, "icepop": 5, "geometric": 2}[kind]
    if kind == "geometric":
        return float(low <= np.prod(np.exp(log_w[tokens])) ** (1 / len(tokens)) <= high)
    w = np.prod(np.exp(log_w[tokens]))
    return min(w, high) if kind == "tis" else w * (low <= w <= high)


def kl_reference(o: Any, x: float) -> tuple[float, float]:
    """Return the estimate at `x = log pi - log ref` and its derivative."""
    return {"k1": (x, 1.0), "k2": (x * x / 2, x), "k3": (np.exp(-x) - 1 + x, 1 - np.exp(-x))}[o.kl_estimator]


def policy_reference(
    group: Sequence[Trajectory],
    mu: np.ndarray,
    prox: np.ndarray,
    pi: np.ndarray,
    o: Any,
    advantages: Callable[[Trajectory], Sequence[float]],
    objective: Objective,
    *,
    aggregation: str,
    counted: Sequence[Trajectory] | None = None,
    decoupled: bool = False,
    score: bool = False,
    il_gamma: float = 1.0,
) -> tuple[float, np.ndarray]:
    loss, grad = imitation_reference(group, pi, il_gamma, aggregation)
    loss, grad = o.lambda_il * loss, o.lambda_il * grad
    counted = learners(group) if counted is None else counted
    requested = sum(not t.is_expert for t in group)
    corrected = getattr(o, "correction", "none") != "none"
    log_w = (pi if score else prox) - mu
    log_ratio = pi - (prox if decoupled or corrected else mu)
    other = {"sampler": mu, "prox": prox, "frozen": REFERENCE}[o.kl_reference]
    for t in counted:
        scale = token_weight(counted, requested, t, aggregation)
        for k, turn in enumerate(t.turns):
            for token in turn.completion_ids:
                estimate, slope = kl_reference(o, pi[token] - other[token])
                a = advantages(t)[k]
                a -= o.kl_weight * estimate if o.kl_place == "reward" else 0.0
                value, derivative = objective(t, a, token, log_ratio)
                c = correction_reference(o, t, k, token, log_w)
                loss -= scale * c * value
                grad[token] -= scale * c * derivative
                if o.kl_place == "loss":
                    loss += scale * o.kl_weight * estimate
                    grad[token] += scale * o.kl_weight * slope
    return loss, grad


def clip_objective(o: Any, ratio: float, a: float) -> tuple[float, float]:
    """Return PPO's dual-clipped objective and its derivative by the log of the ratio."""
    free, bound = ratio * a, min(max(ratio, 1 - o.clip_low), 1 + o.clip_high) * a
    value, slope = (free, free) if free <= bound else (bound, 0.0)
    if a < 0 and value < o.dual_clip * a:
        return o.dual_clip * a, 0.0
    return value, slope


def score(t: Trajectory, o: Any) -> float:
    """Return R: the outcome, with the turns' rewards where an algorithm with credit per trajectory is asked for them."""
    return t.reward + (sum(t.turn_rewards) if getattr(o, "turn_rewards", False) else 0.0)


def outcome(group: Sequence[Trajectory], t: Trajectory, o: Any, baseline: str = "group_mean") -> list[float]:
    rewards = np.array([score(other, o) for other in peers(group, t)])
    if baseline == "none":
        base = 0.0
    elif baseline == "group_mean":
        base = rewards.mean()
    else:
        base = (rewards.sum() - score(t, o)) / (len(rewards) - 1)
    std = rewards.std(ddof=1) + 1e-6 if getattr(o, "normalize_std", False) else 1.0
    return [(score(t, o) - base) / std] * len(t.turns)


def clipping_reference(group, mu, prox, pi, o, advantages=None, **frame):
    """GRPO, arXiv 2402.03300; with other advantages, everything that clips tokens as PPO does."""
    advantages = advantages or (lambda t: outcome(group, t, o))

    def objective(_t, a, token, log_ratio):
        return clip_objective(o, np.exp(log_ratio[token]), a)

    return policy_reference(group, mu, prox, pi, o, advantages, objective, aggregation=o.aggregation, **frame)


def score_objective(pi: np.ndarray) -> Objective:
    return lambda _t, a, token, _log_ratio: (a * pi[token], a)


def decoupled_reference(group, mu, prox, pi, o):
    return clipping_reference(group, mu, prox, pi, o, decoupled=True)


def dapo_reference(group, mu, prox, pi, o):
    """arXiv 2503.14476: groups in which all outcomes are equal do not exist."""
    counted = [t for t in learners(group) if len({p.reward for p in peers(group, t)}) > 1 or not o.drop_flat]
    return clipping_reference(group, mu, prox, pi, o, counted=counted)


def gspo_reference(group, mu, prox, pi, o):
    """arXiv 2507.18071, Eqs. 5 and 7: every token's derivative is that of the sequence, 1/n of it."""

    def objective(t, a, _token, log_ratio):
        ratio = np.prod(np.exp(log_ratio[all_tokens(t)])) ** (1 / t.sampled_tokens)
        return clip_objective(o, ratio, a)

    return policy_reference(
        group, mu, prox, pi, o, lambda t: outcome(group, t, o), objective, aggregation=o.aggregation
    )


def cispo_reference(group, mu, prox, pi, o):
    """arXiv 2506.13585, Eqs. 4 and 5."""

    def objective(_t, a, token, log_ratio):
        weight = min(max(np.exp(log_ratio[token]), 1 - o.clip_low), 1 + o.clip_high)
        return weight * a * pi[token], weight * a

    return policy_reference(
        group, mu, prox, pi, o, lambda t: outcome(group, t, o), objective, aggregation=o.aggregation
    )


def topr_reference(group, mu, prox, pi, o):
    """arXiv 2503.14286: the product of ratios, truncated to [0, 1], on failures."""

    def advantages(t):
        scores = {p.id: p.reward if p.reward > 0 else o.reward_fail for p in peers(group, t)}
        others = [s for name, s in scores.items() if o.baseline == "group_mean" or name != t.id]
        return [scores[t.id] - (np.mean(others) if o.baseline != "none" else 0.0)] * len(t.turns)

    def objective(t, a, token, log_ratio):
        rho = min(np.prod(np.exp(log_ratio[all_tokens(t)])), 1.0)
        weight = rho if a < 0 else 1.0
        return weight * a * pi[token], weight * a

    return policy_reference(group, mu, prox, pi, o, advantages, objective, aggregation=o.aggregation)


def rloo_reference(group, mu, prox, pi, o):
    """arXiv 2402.14740."""
    return policy_reference(
        group,
        mu,
        prox,
        pi,
        o,
        lambda t: outcome(group, t, o, "leave_one_out"),
        score_objective(pi),
        aggregation=o.aggregation,
        score=True,
    )


def reinforce_family_reference(group, mu, prox, pi, o):
    """Williams 1992 with discount, correction and KL term."""

    def advantages(t):
        last = len(t.turns) - 1
        return [a * o.gamma ** (last - k) for k, a in enumerate(outcome(group, t, o, o.baseline))]

    return policy_reference(
        group,
        mu,
        prox,
        pi,
        o,
        advantages,
        score_objective(pi),
        aggregation="constant",
        score=True,
        il_gamma=o.gamma,
    )


def reinforce_pp_reference(group, mu, prox, pi, o):
    """arXiv 2501.03262: whitened over all sampled tokens of the batch."""
    first = {t.id: outcome(group, t, o, o.baseline)[0] for t in learners(group)}
    every = np.concatenate([[first[t.id]] * t.sampled_tokens for t in learners(group)])

    def advantages(t):
        return [(first[t.id] - every.mean()) / (every.std() + 1e-6)] * len(t.turns)

    return clipping_reference(group, mu, prox, pi, o, advantages)


def turn_returns(t: Trajectory, o: Any) -> list[float]:
    returns, ahead = [], t.reward
    for k in reversed(range(len(t.turns))):
        ahead = ahead if k == len(t.turns) - 1 else o.gamma * ahead
        ahead += t.turn_rewards[k] if o.turn_rewards else 0.0
        returns.insert(0, ahead)
    return returns


def gigpo_reference(group, mu, prox, pi, o):
    """arXiv 2505.10978: the outcome within the group, plus the return within the group's visits to the state."""

    def state(t, k):
        return t.observations[k - 1] if k else t.first_observation

    def advantages(t):
        result = []
        for k, episode in enumerate(outcome(group, t, o)):
            visits = [
                turn_returns(p, o)[j]
                for p in peers(group, t)
                for j in range(len(p.turns))
                if state(p, j) == state(t, k)
            ]
            step = turn_returns(t, o)[k] - np.mean(visits)
            if o.normalize_std:
                step /= (np.std(visits, ddof=1) if len(visits) > 1 else 0.0) + 1e-6
            result.append(episode + o.step_weight * step)
        return result

    return clipping_reference(group, mu, prox, pi, o, advantages)


def starpo_reference(group, mu, prox, pi, o):
    """arXiv 2504.20073: returns of whole interactions; only the groups that deviate most."""

    def spread(t):
        return np.std([score(p, o) for p in peers(group, t)])

    names = sorted({(-spread(t), t.group_id) for t in learners(group)})
    kept = {name for _, name in names[: max(round(o.keep_share * len(names)), 1)]}
    counted = [t for t in learners(group) if t.group_id in kept]
    return clipping_reference(group, mu, prox, pi, o, counted=counted)


def step_reinforce_reference(group, mu, prox, pi, o):
    """ROLL's step_reinforce: the return of a turn less the mean turn of the group."""

    def advantages(t):
        every = np.concatenate([turn_returns(p, o) for p in peers(group, t)])
        base = every.mean() if o.baseline == "group_mean" else 0.0
        std = every.std(ddof=1) + 1e-6 if o.normalize_std else 1.0
        return [(g - base) / std for g in turn_returns(t, o)]

    return policy_reference(
        group,
        mu,
        prox,
        pi,
        o,
        advantages,
        score_objective(pi),
        aggregation=o.aggregation,
        score=True,
        il_gamma=o.gamma,
    )


def gae_reference(t: Trajectory, o: Any) -> list[float]:
    """arXiv 1506.02438, Eq. 16, as a sum over the turns to come; a turn without a token is a part of the one before."""
    (values,) = values_of([t])
    decides = [k for k, turn in enumerate(t.turns) if len(turn.completion_ids)]
    cut = o.bootstrap and t.stop_reason in ("truncated", "max_turns") and not t.reward
    rewards = [r * o.turn_rewards for r in t.turn_rewards]
    rewards[-1] += 0.0 if cut else t.reward
    deltas = []
    for k, end in zip(decides, [*decides[1:], len(t.turns)], strict=True):
        ahead = values[end] if end < len(t.turns) or cut else 0.0
        earned = sum(o.gamma ** (j - k) * rewards[j] for j in range(k, end))
        deltas.append(earned + o.gamma ** (end - k) * ahead - values[k])
    advantages = [0.0] * len(t.turns)
    for n, k in enumerate(decides):
        for m in range(n, len(decides)):
            advantages[k] += o.gamma ** (decides[m] - k) * o.trace ** (m - n) * deltas[m]
    return advantages


def value_reference(group: Sequence[Trajectory], o: Any) -> tuple[float, np.ndarray]:
    """Return the clipped value loss (arXiv 2005.12729, section 3) and its gradient by the table of present values."""
    loss, grad, turns = 0.0, np.zeros(TABLE), 0
    for t in learners(group):
        for k, turn in enumerate(t.turns):
            if not len(turn.completion_ids):
                continue
            token = turn.completion_ids[0]
            target, old, now = gae_reference(t, o)[k] + OLD_VALUES[token], OLD_VALUES[token], VALUES[token]
            near = min(max(now, old - o.value_clip), old + o.value_clip)
            free, bound = (now - target) ** 2 / 2, (near - target) ** 2 / 2
            loss += max(free, bound)
            grad[token] += now - target if free >= bound else 0.0
            turns += 1
    return loss / turns, grad / turns


def ppo_reference(group, mu, prox, pi, o):
    """arXiv 1707.06347, Eqs. 7 and 9, with normalised advantages."""
    first = {t.id: gae_reference(t, o) for t in learners(group)}
    every = np.concatenate(
        [
            [a] * len(turn.completion_ids)
            for t in learners(group)
            for a, turn in zip(first[t.id], t.turns, strict=True)
        ]
    )

    def advantages(t):
        if not o.whiten:
            return first[t.id]
        return [(a - every.mean()) / (every.std() + 1e-6) for a in first[t.id]]

    loss, grad = clipping_reference(group, mu, prox, pi, o, advantages)
    return loss + value_reference(group, o)[0], grad
