"""Which records the learner takes at all. Called before any credit is given, and when experts arrive.

What is kept out would move a group's baseline without having acted, make every number of its group NaN, or teach tokens
of another model. It judges records, never outcomes: a failed rollout goes on to the algorithm, which drops it by name.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence

import numpy as np

from agent_runtime.policy import ChatTemplate
from agent_runtime.types import IntArray, Trajectory
from trainer.data.batch import Credit
from trainer.errors import BatchError

__all__ = ["NO_TOKEN", "check_experts", "screened_credits"]

NO_TOKEN = "no token sampled"
"""Reason of a trajectory that ended before its policy said anything, such as one whose first prompt was too long."""


def check_experts(experts: Sequence[Trajectory], *, envs: Collection[str], template: ChatTemplate) -> None:
    """Raise `BatchError` for an expert of another environment, or of another version of it, or told in other tokens.

    Experts are retold when a run reads them, so this happens where a run goes on with a changed installation or model.
    `envs` are `name@version`. Tokens that a policy sampled are its own and not looked at.
    """
    for expert in experts:
        if expert.env not in envs:
            raise BatchError(
                f"expert {expert.id!r} was recorded in {expert.env}, this run's environment is {', '.join(envs)}: what it "
                "did there may mean something else here. Install the version that recorded it, or start a new run."
            )
        for branch in expert.branches():
            shown: list[IntArray] = []
            for turn in branch.turns:
                shown.append(turn.context_ids)
                if turn.finish_reason == "expert":
                    told = template.encode_completion(expert.actions[turn.index], np.concatenate(shown))
                    if not np.array_equal(told, turn.completion_ids):
                        raise BatchError(
                            f"turn {turn.index} of expert {expert.id!r} is told in another tokenizer: got the tokens "
                            f"{turn.completion_ids.tolist()!r}, this model writes its action as {told.tolist()!r}. Name "
                            "the records as warmup.data of a new run, which retells them."
                        )
                shown.append(turn.completion_ids)


def screened_credits(
    trajectories: Sequence[Trajectory],
    credit: Callable[[Sequence[Trajectory]], list[Credit]],
    rejection: Callable[[Trajectory], str] = lambda trajectory: "",
) -> list[Credit]:
    """Return a credit per trajectory, asking `credit` only for those that can have one; the others are dropped.

    `rejection` says why a trajectory is a placeholder for one that could not be had; "" for all others. Raise `BatchError`
    for an outcome that is not finite although the rollout did not fail.
    """
    reasons = [_reason(trajectory, rejection) for trajectory in trajectories]
    given = iter(credit([t for t, reason in zip(trajectories, reasons, strict=True) if not reason]))
    return [
        _dropped(trajectory, reason) if reason else next(given)
        for trajectory, reason in zip(trajectories, reasons, strict=True)
    ]


def _reason(trajectory: Trajectory, rejection: Callable[[Trajectory], str]) -> str:
    """Return why no credit is asked for; a failure has a reason of its own, which the algorithm names."""
    if not trajectory.has_reward:
        return ""
    if not math.isfinite(trajectory.reward) or not np.isfinite(trajectory.turn_rewards).all():
        raise BatchError(
            f"{trajectory.env} graded trajectory {trajectory.id!r} with the reward {trajectory.reward!r} (turns: "
            f"{trajectory.turn_rewards!r}), expected finite numbers: its whole group would learn NaN. Nothing was learned "
            "from this step: fix the environment's `evaluate` or `step`."
        )
    return rejection(trajectory) or ("" if trajectory.sampled_tokens else NO_TOKEN)


def _dropped(trajectory: Trajectory, reason: str) -> Credit:
    zeros = np.zeros(len(trajectory.turns))
    return Credit(zeros, False, zeros, reason)
