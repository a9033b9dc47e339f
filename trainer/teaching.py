"""Whether anything can be learned from a step's rollouts: how much the policy still tries, how groups differ, and what to do
where they no longer do. Asked by `trainer.run`; reads records and numbers only, and changes none.

An entropy is that of the distribution that each token was drawn from, as the sampler stated it; where it stated none, the
turn is estimated by the mean of -log mu over its tokens, whose expectation it is.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import msgspec
import numpy as np

from agent_runtime.types import Trajectory, Turn

__all__ = ["Signal", "signal_metrics", "starving", "taught"]

LEAN_SHARE = 0.1
"""Of the groups: a step in which no more teach is lean."""
LEAN_STEPS = 8
"""So many lean steps in a row are no chance, and no slow beginning."""
TORN_KL, TORN_STEPS = 0.03, 3
"""Nats per token by which a step's own updates move the policy (`kl/k3`), in the mean of so many steps: what one learns the
next undoes. Runs that learn have less, or groups most of which teach."""
COLLAPSED = 0.1
"""Of the first step's entropy: what is left where a policy has stopped trying."""
SOLVED = 0.95
"""Success from which a policy that tries little more is one that has learned."""
FELL, KNOWN = 0.5, 0.2
"""With less than this share of a best success that was beyond chance, something was destroyed."""


class Signal(msgspec.Struct):
    """What a run remembers of its steps, to name what starves it once."""

    first_entropy: float = math.nan
    best_success: float = 0.0
    lean_steps: int = 0
    moved: list[float] = []
    """`kl/k3` of the newest steps whose samples were fresh."""
    is_named: bool = False


def signal_metrics(trajectories: Sequence[Trajectory]) -> dict[str, float]:
    """Return how much a step's rollouts differ, over those that did not fail: groups, and entropies of their tokens.

    Nothing where no token was sampled.
    """
    groups: dict[str, list[Trajectory]] = {}
    for trajectory in trajectories:
        if trajectory.has_reward and trajectory.sampled_tokens:
            groups.setdefault(trajectory.group_id, []).append(trajectory)
    if not groups:
        return {}
    mixed = [len({t.reward for t in group}) > 1 for group in groups.values()]
    passed = [all(t.passed for t in group) for group in groups.values()]
    distinct = [len({_said(t) for t in group}) / len(group) for group in groups.values()]
    turns = [turn for group in groups.values() for t in group for turn in t.turns if len(turn.completion_ids)]
    tokens_K = np.array([len(turn.completion_ids) for turn in turns])
    stated_K = np.array([not math.isnan(turn.entropy) for turn in turns])
    entropy_K = np.array([_entropy(turn) for turn in turns])
    low, high = np.quantile(entropy_K, (0.1, 0.9))
    return {
        "groups": float(len(groups)),
        "mixed_groups": float(sum(mixed)),
        "passed_groups": float(sum(p and not m for p, m in zip(passed, mixed, strict=True))),
        "failed_groups": float(sum(not p and not m for p, m in zip(passed, mixed, strict=True))),
        "unique_rollouts": float(np.mean(distinct)),
        "entropy": float(np.average(entropy_K, weights=tokens_K)),
        "entropy/exact": float(np.average(stated_K, weights=tokens_K)),
        "entropy/turn_low": float(low),
        "entropy/turn_high": float(high),
    }


def _said(trajectory: Trajectory) -> tuple[bytes, ...]:
    return tuple(turn.completion_ids.tobytes() for turn in trajectory.turns)


def _entropy(turn: Turn) -> float:
    return -float(turn.logprobs.mean()) if math.isnan(turn.entropy) else turn.entropy


def taught(metrics: Mapping[str, float]) -> str:
    """Return `13 of 64 groups teach`; "" where a step has no groups."""
    if "credit/groups" not in metrics or "groups" not in metrics:
        return ""
    return f"{metrics['credit/groups']:.0f} of {metrics['groups']:.0f} groups teach"


def starving(step: int, metrics: Mapping[str, float], signal: Signal) -> str:
    """Say once in a run that it has hardly anything left to learn from, why, and what helps; "" otherwise.

    `metrics` are the step's; `signal` remembers it. A run starves where at most a tenth of its groups teach in each of
    eight steps in a row; where its entropy is below a tenth of the first step's while its tasks are not solved; or where,
    with half of the groups teaching at most, each step moves the policy too far.
    """
    if "groups" not in metrics:
        return ""
    entropy, groups = metrics["entropy"], metrics["groups"]
    success = metrics.get("start_success", metrics.get("success", 0.0))
    if math.isnan(signal.first_entropy):
        signal.first_entropy = entropy
    fell = success < FELL * signal.best_success and signal.best_success > KNOWN
    signal.best_success = max(signal.best_success, success)
    teaching = metrics.get("credit/groups", 0.0)
    signal.lean_steps = signal.lean_steps + 1 if teaching <= LEAN_SHARE * groups else 0
    collapsed = entropy < COLLAPSED * signal.first_entropy
    if not metrics.get("lag/max"):
        signal.moved = [*signal.moved, metrics.get("kl/k3", 0.0)][-TORN_STEPS:]
    moved = sum(signal.moved) / TORN_STEPS
    torn = moved > TORN_KL and len(signal.moved) == TORN_STEPS and teaching <= groups / 2
    if signal.is_named or not (signal.lean_steps >= LEAN_STEPS or torn or (collapsed and success < SOLVED)):
        return ""
    signal.is_named = True
    failed, passed = metrics["failed_groups"], metrics["passed_groups"]
    return (
        f"step {step}: the run starves: {taught(metrics) or 'no group teaches'} ({passed:.0f} pass and {failed:.0f} fail as "
        f"a whole), {_torn(moved) if torn else _cause(signal, entropy, success, collapsed, fell, failed > passed)}."
    )


def _torn(moved: float) -> str:
    return (
        f"because the updates of one step move the policy by {moved:.2f} nats per token, and the next step's undo what they "
        "taught: lower optim.lr (by ten), and draw larger groups (rollout.group_size)"
    )


def _cause(signal: Signal, entropy: float, success: float, collapsed: bool, fell: bool, fails: bool) -> str:
    if fell:
        return (
            f"because updates destroyed what the policy could do (success {success:.2f}, best before "
            f"{signal.best_success:.2f}): start again with a lower optim.lr and larger groups (rollout.group_size)"
        )
    if collapsed:
        return (
            f"because the policy tries hardly anything else any more (entropy {entropy:.3f} nats per token, "
            f"{signal.first_entropy:.3f} at first): set explore.target_entropy={signal.first_entropy / 3:.2g}, "
            f"{'a lower optim.lr' if fails else 'filter.dynamic=on'} and larger groups (rollout.group_size)"
        )
    if fails:
        return (
            "because nearly all rollouts fail: start them nearer to the goal (anchors.scheduler=sequential), imitate more "
            "first (warmup.trajectories, warmup.epochs), or draw larger groups (rollout.group_size)"
        )
    return (
        "because nearly all rollouts pass: draw the tasks that are not solved yet (curriculum.tasks=pass_rate, "
        "filter.dynamic=on), or end the run here"
    )
