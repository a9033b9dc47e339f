"""`ale replay tokens`: what became of every token of a rollout in the step that learned it, and why.

Nothing of it is stored: the learner is brought to just before the step's update (`ale.replay.retraining`), says what it is
about to learn, and learns it. Log-probabilities are those under the weights that the step began with. What the loss masks is
asked before each of the step's updates, so with several minibatches, too, the tokens add up to the run's ledger.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from agent_runtime.policy import ChatTemplate
from agent_runtime.types import PolicyVersion, Trajectory, Turn
from ale.errors import RecordError
from ale.replay.records import find
from ale.replay.retraining import StepAgain, prepare_again
from ale.replay.showing import said_version
from ale.terminal import stdout
from ale.training import runs
from trainer.data.batch import Credit
from trainer.data.build import branches_of_rows
from trainer.data.ledger import TOO_OLD
from trainer.scheduler.journal import learned_batches

__all__ = ["TurnAccount", "accounts", "learned_in", "tokens_command"]

_SHOWN = 120


@dataclass(frozen=True, slots=True)
class TurnAccount:
    """What became of one turn's tokens."""

    trajectory: str
    turn: int
    fates: tuple[str, ...]
    """Of each token: `trained`, or `masked: REASON`, or `dropped: REASON`, in the ledger's words."""
    advantage: float
    """The credit of its tokens; 0 where the trajectory takes no part."""
    chunk: int
    """Of the trajectory, from 0; -1 where it takes no part."""
    version: PolicyVersion
    """Of the policy that sampled it."""
    sampled_logprobs: tuple[float, ...]
    learner_logprobs: tuple[float, ...]
    """Under the weights that the step began with; empty where the turn is in no row of the batch."""
    texts: tuple[str, ...] = ()
    """Of each token, as JSON has them: "" of one that has none, such as the end of an answer."""

    @property
    def gap(self) -> float:
        """Return the mean of the learner's log-probability less the sampler's; NaN where nobody knows."""
        if not self.learner_logprobs:
            return float("nan")
        return float(np.mean(np.subtract(self.learner_logprobs, self.sampled_logprobs)))


def tokens_command(where: str, identity: str | None, *, as_json: bool) -> None:
    """Print a rollout's account. Raise `RecordError` for one that no step learned, or as `retrain`."""
    folder = runs.locate(where)
    rollout = find(where, identity)
    if rollout.policy_step < 1 or rollout.is_expert:
        raise RecordError(
            f"no step learned {rollout.id!r}: got a rollout of an expert or an evaluation, expected one of a training step "
            "(`ale replay list RUN --file 'step-*'`)."
        )
    step = prepare_again(folder, learned_in(folder, rollout))
    found = [account for account in accounts(step) if account.trajectory == rollout.id]
    if as_json:
        template = step.learner.template
        told = [asdict(replace(each, texts=_texts(template, rollout.turns[each.turn]))) for each in found]
        sys.stdout.write(f"{json.dumps(told)}\n")
        return
    for line in _lines(rollout, step, found):
        stdout().print(line)


def _texts(template: ChatTemplate, turn: Turn) -> tuple[str, ...]:
    ids = turn.completion_ids
    return tuple(template.decode(ids[at : at + 1]) for at in range(len(ids)))


def learned_in(folder: Path, rollout: Trajectory) -> int:
    """Return the step that learned a rollout, by the run's journal; the one it was planned for where that says nothing.

    Raise `InvalidArgument` for a journal that cannot be read.
    """
    batches = learned_batches(folder).items()
    own = (step for step, batch in batches if rollout.id in (*batch.rollouts, *batch.set_aside))
    return next(own, rollout.policy_step)


def _lines(rollout: Trajectory, step: StepAgain, found: Sequence[TurnAccount]) -> Iterator[str]:
    yield f"{rollout.id}  task {rollout.task_id}, reward {rollout.reward:g}, learned in step {step.step}"
    if why := step.set_aside.get(rollout.id):
        yield f"the learner did not see it: {why}"
    for account in found:
        fates = ", ".join(f"{count} {fate}" for fate, count in Counter(account.fates).items()) or "no token"
        known = f", gap {account.gap:+.4f}" if account.learner_logprobs else ""
        yield (
            f"-- turn {account.turn}: {fates}; advantage {account.advantage:g}, chunk {account.chunk}, policy version "
            f"{said_version(account.version)}{known}"
        )
        action = rollout.actions[account.turn] if account.turn < len(rollout.actions) else ""
        yield f"   > {action[:_SHOWN]}{'…' if len(action) > _SHOWN else ''}"
    totals = Counter(fate for account in found for fate in account.fates)
    yield f"in all: {', '.join(f'{count} {fate}' for fate, count in totals.items()) or 'no token'}"


def _masked(step: StepAgain, shape: Sequence[int]) -> dict[str, NDArray[np.bool_]]:
    """Return the tokens that the loss of each update masks, by reason; the learner has learned the step then."""
    found: dict[str, NDArray[np.bool_]] = {}
    for rows, masked in step.learner.learn_and_tell(step.prepared, lr=step.lr, step=step.step):
        for reason, mask_BT in masked.items():
            whole_BT = found.setdefault(reason, np.zeros(shape, np.bool_))
            whole_BT[rows, : mask_BT.shape[1]] = mask_BT.numpy()
    return found


def accounts(step: StepAgain) -> Iterator[TurnAccount]:
    """Yield the account of every turn that this step's learner was given, trajectory by trajectory.

    Call it once: the learner learns the step.
    """
    prepared = step.prepared
    batch, credits = prepared.batch, prepared.credits
    # Of what is too old, too: the loss does not see it.
    logprobs_BT = step.learner.logprobs(replace(batch, loss_mask_BT=batch.policy_version_BT >= 0))
    rows = _rows(step, logprobs_BT, _masked(step, logprobs_BT.shape))
    for index, (trajectory, credit) in enumerate(zip(prepared.trajectories, credits, strict=True)):
        if trajectory.is_expert:
            continue
        chunk_K = credit.chunk_K if credit.chunk_K is not None else np.arange(len(trajectory.turns))
        for turn in trajectory.turns:
            count = len(turn.completion_ids)
            logprobs, reasons = rows.get((index, turn.index), ((), [""] * count))
            yield TurnAccount(
                trajectory.id,
                turn.index,
                tuple(
                    _fate(credit, turn.index, TOO_OLD if version < credit.oldest else reason)
                    for version, reason in zip(turn.versions.tolist(), reasons, strict=True)
                ),
                0.0 if credit.dropped else float(credit.advantage_K[turn.index]),
                -1 if credit.dropped else int(chunk_K[turn.index]),
                turn.policy_version,
                tuple(map(float, turn.logprobs)),
                tuple(logprobs),
            )


def _fate(credit: Credit, turn: int, reason: str) -> str:
    if credit.dropped:
        return f"dropped: {credit.dropped}"
    if np.float32(credit.advantage_K[turn]) == 0 and not credit.every_token:
        return f"masked: {credit.masked.get(turn, 'zero credit')}"
    return f"masked: {reason}" if reason else "trained"


def _rows(
    step: StepAgain, logprobs_BT: torch.Tensor, masked: dict[str, NDArray[np.bool_]]
) -> dict[tuple[int, int], tuple[list[float], list[str]]]:
    """Return, by trajectory and turn, the learner's log-probabilities and why the loss left tokens out ("" if not)."""
    prepared = step.prepared
    acts_BT = (prepared.batch.policy_version_BT >= 0).numpy()
    values_BT = logprobs_BT.numpy()
    found: dict[tuple[int, int], tuple[list[float], list[str]]] = {}
    for row, (index, branch) in enumerate(branches_of_rows(prepared.trajectories, prepared.credits)):
        if prepared.trajectories[index].is_expert:
            continue
        place_N = np.flatnonzero(acts_BT[row])
        first = 0
        for turn in branch.turns[branch.shared :]:
            own_N = place_N[first : first + len(turn.completion_ids)]
            first += len(own_N)
            reasons = [next((why for why, mask in masked.items() if mask[row, at]), "") for at in own_N]
            found[index, turn.index] = (values_BT[row, own_N].tolist(), reasons)
    return found
