"""What a step's rollouts say by themselves. Reads records only."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np

from agent_runtime.faults import count_blame
from agent_runtime.types import Trajectory, TurnLabel
from rock_env.faults import Blame
from trainer.environments import name_of
from trainer.rollout.anchors import Anchor

__all__ = [
    "agent_metrics",
    "effective_share",
    "env_metrics",
    "episode_metrics",
    "fall",
    "fault_metrics",
    "growth",
    "illegal_share",
    "sampled_tokens",
    "start_metrics",
    "step_metrics",
    "summary_metrics",
]


def step_metrics(
    seen: Sequence[Trajectory],
    from_start: Sequence[Trajectory],
    anchors: Mapping[str, Anchor],
    envs: Sequence[str],
) -> Mapping[str, float]:
    """Return what a step's rollouts say, all of them and those without an anchor, in all and by environment."""
    return {
        **summary_metrics(seen),
        **{f"start_{name}": value for name, value in summary_metrics(from_start).items()},
        **env_metrics(envs, seen, from_start),
        **start_metrics(seen, anchors),
        **agent_metrics(seen),
    }


def summary_metrics(trajectories: Sequence[Trajectory]) -> Mapping[str, float]:
    """Return what a step's rollouts say by themselves: success, length, failures."""
    done = [t for t in trajectories if t.has_reward]
    if not done:
        return {"failed": float(len(trajectories))}
    turns = sum(len(t.turns) for t in done)
    return {
        "success": float(np.mean([t.passed for t in done])),
        "reward": float(np.mean([t.reward for t in done])),
        "turns": turns / len(done),
        **({"illegal_share": illegal_share(done)} if turns else {}),
        "failed": float(len(trajectories) - len(done)),
    }


def env_metrics(
    envs: Sequence[str], trajectories: Sequence[Trajectory], from_start: Sequence[Trajectory]
) -> Mapping[str, float]:
    """Return the same of each environment of a mixture, and how many groups it had; nothing of a single one."""
    if len(envs) == 1:
        return {}
    found: dict[str, float] = {}
    for env in envs:
        own, started = ([t for t in each if name_of(t) == env] for each in (trajectories, from_start))
        values = {
            **(summary_metrics(own) if own else {}),
            **(
                {f"start_{name}": value for name, value in summary_metrics(started).items()}
                if started
                else {}
            ),
            "groups": float(len({t.group_id for t in own})),
        }
        found |= {f"env/{env}/{name}": value for name, value in values.items()}
    return found


def fall(step: int, before: float, now: float, groups: int) -> str:
    """Say that success from the start is less than one step before; nothing where it is not, or by chance may be.

    Both shares are of as many groups; rollouts of one group tell little more than one of them. Asked at each of hundreds
    of steps, so that it takes four standard errors.
    """
    if not groups or math.isnan(before) or math.isnan(now):
        return ""
    mean = (before + now) / 2
    if before - now <= 4 * math.sqrt(2 * mean * (1 - mean) / groups):
        return ""
    return (
        f"step {step}: success from the start fell from {before:.2f} to {now:.2f} with the update of step {step - 1}. "
        "Where it does not come back, lower optim.lr."
    )


def illegal_share(trajectories: Sequence[Trajectory]) -> float:
    """Return the share of turns that were no action; NaN where there is no turn."""
    turns = sum(len(t.turns) for t in trajectories)
    return sum(t.illegal_actions for t in trajectories) / turns if turns else math.nan


def effective_share(trajectories: Sequence[Trajectory]) -> float:
    """Return the share of actions that changed something: the observation after one differs from that before it.

    NaN where there is no action; the turns of a CLI agent's session are none.
    """
    actions = changed = 0
    for trajectory in trajectories:
        shown = trajectory.first_observation
        for turn in () if trajectory.is_session else trajectory.env_turns:
            before, shown = shown, trajectory.observations[turn]
            actions, changed = actions + 1, changed + (shown != before)
    return changed / actions if actions else math.nan


def episode_metrics(trajectories: Sequence[Trajectory]) -> dict[str, float]:
    """Return how episodes that ended with a verdict went, each NaN where there is nothing to take it over."""
    turns = sum(len(t.turns) for t in trajectories)
    tokens = sum(t.sampled_tokens for t in trajectories)
    passed = [len(t.turns) for t in trajectories if t.passed]
    return {
        "turns_to_success": sum(passed) / len(passed) if passed else math.nan,
        "effective_share": effective_share(trajectories),
        "turn_tokens": tokens / turns if turns else math.nan,
        "episode_tokens": tokens / len(trajectories) if trajectories else math.nan,
    }


def growth(now: Mapping[str, float], first: Mapping[str, float]) -> dict[str, float]:
    """Return how much longer answers are than in the first evaluation, as a ratio; nothing where one has none."""
    before, after = first.get("turn_tokens", 0.0), now.get("turn_tokens")
    return {} if after is None or not before else {"turn_tokens_growth": after / before}


def agent_metrics(trajectories: Sequence[Trajectory]) -> Mapping[str, float]:
    """Return how many turns the policy spent on itself, per rollout that did not fail: summaries, calls of the memory, and
    thoughts that were cut off."""
    done = [t for t in trajectories if t.has_reward]
    if not done:
        return {}
    labels = Counter(label for t in done for label in t.turn_labels)
    # A session's compactions are the agent's own doing: no turn of it is internal, and it has no memory of ours.
    ours = [t for t in done if t.internal_turns]
    memory = sum(t.label(turn) is TurnLabel.MAIN for t in ours for turn in t.internal_turns)
    counts = {"summary": labels[TurnLabel.SUMMARY], "memory": memory, "thought": labels[TurnLabel.THOUGHT]}
    return {f"turns/{name}": count / len(done) for name, count in counts.items()}


def fault_metrics(trajectories: Sequence[Trajectory]) -> Mapping[str, float]:
    """Return whose fault it was that something did not work: turns of the agent and its tools, rollouts of the rest."""
    counts = count_blame(trajectories)
    return {f"faults/{blame}": float(counts[blame]) for blame in Blame}


def sampled_tokens(trajectories: Sequence[Trajectory]) -> int:
    """Return how many tokens were sampled, those lost with a failed step included."""
    return sum(t.sampled_tokens + t.lost_tokens for t in trajectories)


def start_metrics(trajectories: Sequence[Trajectory], anchors: Mapping[str, Anchor]) -> Mapping[str, float]:
    """Return where the rollouts began, as a histogram over their experts' length, and what they only read.

    `anchors` are those of the groups that do not begin at the task's own start.
    """
    if not trajectories:
        return {}
    quarters, hinted, told = [0, 0, 0, 0], 0, 0
    for trajectory in trajectories:
        if trajectory.start.hint:
            hinted += 1
            told += anchors[trajectory.group_id].hint
        elif anchor := trajectory.start.anchor:
            quarters[(4 * anchor - 1) // len(anchors[trajectory.group_id].expert.turns)] += 1
    replayed = [t for t in trajectories if t.start.anchor]
    diverged = sum(t.failure is not None and t.failure.code == "reset_divergence" for t in replayed)
    prompts = (len(turn.context_ids) for t in trajectories for turn in t.turns)
    return {
        "anchors/start": 1 - (hinted + sum(quarters)) / len(trajectories),
        "anchors/hinted": hinted / len(trajectories),
        "hint_turns": float(told),
        **{f"anchors/quarter_{n}": count / len(trajectories) for n, count in enumerate(quarters, 1)},
        **({"reset_divergence_rate": diverged / len(replayed)} if replayed else {}),
        "prefix_turns": float(sum(t.start.anchor for t in trajectories)),
        "context_tokens": float(sum(prompts)),
    }
