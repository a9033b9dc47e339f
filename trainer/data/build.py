"""Pack trajectories and their credits into a `TrainBatch`, and cut a batch into parts.

It never decides who learns what: that is the algorithm's credit. The `Ledger` accounts for every sampled token exactly
once.

One row per branch, its segment numbered 1. Work per token is flat NumPy; Python loops run over turns at most.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from agent_runtime.policy import version_fault
from agent_runtime.types import Branch, Trajectory
from trainer.data.batch import Counts, Credit, TrainBatch
from trainer.data.ledger import TOO_OLD, Ledger
from trainer.errors import BatchError

__all__ = [
    "Ledger",
    "bins_by_width",
    "branches_of_rows",
    "build_batch",
    "bundles_of",
    "microbatches",
    "rows_of_parts",
    "shuffled_rows",
    "split_rows",
    "taken",
]

Ints = NDArray[np.int64]
Array = NDArray[Any]


@dataclass(slots=True)
class _Kept:
    """The trajectories that get rows, and the counts over those that train."""

    trajectories: list[Trajectory] = field(default_factory=list)
    credits: list[Credit] = field(default_factory=list)
    index: list[int] = field(default_factory=list)
    tokens: list[int] = field(default_factory=list)
    groups: list[int] = field(default_factory=list)
    masked: Counter[str] = field(default_factory=Counter)
    dropped: Counter[str] = field(default_factory=Counter)
    dropped_trajectories: Counter[str] = field(default_factory=Counter)
    rl: Counts = field(default_factory=Counts)
    imitation: Counts = field(default_factory=Counts)


def build_batch(
    trajectories: Sequence[Trajectory],
    credits: Sequence[Credit],
    *,
    token_budget: int,
    pad_to: int = 8,
    skip_zero_credit: bool = True,
) -> tuple[TrainBatch, Ledger]:
    """Return the batch of everything that trains, and the account of every sampled token.

    `token_budget` is the most tokens one trajectory may sample (turns x tokens per turn): the constant
    normalizers are it times the number of trajectories given, dropped ones included. `skip_zero_credit`
    leaves out rows no chunk of which has credit, for their RL gradient is exactly zero, unless a critic learns from
    them; they still count in all divisors. T is a multiple of `pad_to`; no row at all gives B = 0. Raise `BatchError` for
    credit that does not fit its trajectory or is not finite, and for a broken recording.
    """
    if len(trajectories) != len(credits):
        raise ValueError(
            f"need one credit per trajectory: got {len(credits)} for {len(trajectories)} trajectories."
        )
    skip_zero_credit = skip_zero_credit and not any(credit.every_token for credit in credits)
    kept = _choose(trajectories, credits, skip_zero_credit)
    experts = [t for t in trajectories if t.is_expert]
    skip_idle = skip_zero_credit and all(credit.return_K is None for credit in credits)
    batch = _pack(kept, _flatten(kept, skip_idle), pad_to)
    batch = replace(
        batch,
        normalizer=float(max(len(trajectories) - len(experts), 1) * token_budget),
        imitation_normalizer=float(max(len(experts), 1) * token_budget),
    )
    weighs_BT = batch.advantages_BT != 0 if skip_zero_credit else True
    ledger = Ledger(
        total=sum(t.sampled_tokens + t.lost_tokens for t in trajectories),
        trained=int((batch.loss_mask_BT & weighs_BT).sum()),
        imitated=int((batch.imitation_BT != 0).sum()),
        masked={reason: tokens for reason, tokens in kept.masked.items() if tokens},
        dropped={reason: tokens for reason, tokens in kept.dropped.items() if tokens},
        experts=sum(t.sampled_tokens for t in experts),
        dropped_trajectories=dict(kept.dropped_trajectories),
    )
    return batch, ledger


def _choose(trajectories: Sequence[Trajectory], credits: Sequence[Credit], skip_zero_credit: bool) -> _Kept:
    kept = _Kept()
    totals = {True: [0, 0, 0], False: [0, 0, 0]}
    groups: dict[str, int] = {}
    for index, (trajectory, credit) in enumerate(zip(trajectories, credits, strict=True)):
        tokens = trajectory.sampled_tokens
        if credit.dropped:
            kept.dropped[credit.dropped] += tokens + trajectory.lost_tokens
            kept.dropped_trajectories[credit.dropped] += 1
            continue
        expert = trajectory.is_expert
        _check_credit(trajectory, credit, expert)
        _check_versions(trajectory)
        masked = _masked_tokens(trajectory, credit, skip_zero_credit)
        if expert:
            tokens -= sum(masked.values())
        kept.masked.update(masked)
        totals[expert][0] += 1
        totals[expert][1] += tokens
        totals[expert][2] += sum(len(turn.completion_ids) > 0 for turn in trajectory.turns)
        kept.trajectories.append(trajectory)
        kept.credits.append(credit)
        kept.index.append(index)
        kept.tokens.append(tokens)
        kept.groups.append(-1 if expert else groups.setdefault(trajectory.group_id, len(groups)))
    kept.rl, kept.imitation = Counts(*totals[False]), Counts(*totals[True])
    return kept


def _masked_tokens(trajectory: Trajectory, credit: Credit, skip_zero_credit: bool) -> Counter[str]:
    """Return by reason the tokens of turns that weigh 0, unless these train all the same, and of others those too old."""
    expert = trajectory.is_expert
    usual = "expert turn not imitated" if expert else "zero credit"
    weights_K = _weights(credit.imitation_K if expert else credit.advantage_K)
    found: Counter[str] = Counter()
    turns = zip(trajectory.turns, weights_K.tolist(), _too_old(trajectory, credit).tolist(), strict=True)
    for turn, weight, old in turns:
        if weight == 0 and (expert or skip_zero_credit):
            found[credit.masked.get(turn.index, usual)] += len(turn.completion_ids)
        else:
            found[TOO_OLD] += old
    return found


def _too_old(trajectory: Trajectory, credit: Credit) -> Ints:
    """Return how many tokens of each turn are of versions before the credit's oldest; 0 of an expert."""
    if credit.oldest < 0 or trajectory.is_expert:
        return np.zeros(len(trajectory.turns), np.int64)
    return np.array([np.count_nonzero(turn.versions < credit.oldest) for turn in trajectory.turns], np.int64)


def _idle_turns(trajectory: Trajectory, credit: Credit) -> NDArray[np.bool_]:
    """Return which turns teach nothing: one without credit is still part of the ratio of a chunk that has some, unless
    all its tokens are too old."""
    chunk_K, old_K = _chunks(credit), _too_old(trajectory, credit)
    gone_K = (old_K > 0) & (old_K == [len(turn.completion_ids) for turn in trajectory.turns])
    weighs_K = (_weights(credit.advantage_K) != 0) | (_weights(credit.imitation_K) != 0)
    idle_K: NDArray[np.bool_] = gone_K | ~np.isin(chunk_K, chunk_K[weighs_K])
    return idle_K


def _chunks(credit: Credit) -> Ints:
    return np.arange(len(credit.advantage_K)) if credit.chunk_K is None else credit.chunk_K


def _weights(credit_K: Array) -> NDArray[np.float32]:
    """Return credit as the batch holds it, so that what counts as 0 or finite is what the loss will see."""
    with np.errstate(over="ignore"):
        return credit_K.astype(np.float32)


def _check_credit(trajectory: Trajectory, credit: Credit, expert: bool) -> None:
    turns = len(trajectory.turns)
    used, unused = credit.advantage_K, credit.imitation_K
    if expert:
        used, unused = unused, used
    if len(used) != turns or len(unused) != turns:
        problem = f"has {len(used)} and {len(unused)} entries for {turns} turns"
    elif not np.isfinite(_weights(used)).all():
        problem = f"is not finite: {used!r}"
    elif unused.any():
        kind = "an RL advantage on an expert" if expert else "an imitation weight on a sampled"
        problem = f"puts {kind} trajectory"
    elif credit.chunk_K is not None and (len(credit.chunk_K) != turns or (np.diff(credit.chunk_K) < 0).any()):
        problem = f"has chunks that are not one rising index per turn: {credit.chunk_K!r}"
    else:
        return
    raise BatchError(f"the credit of trajectory {trajectory.id!r} {problem}. Fix the algorithm's `credit`.")


def _check_versions(trajectory: Trajectory) -> None:
    for turn in trajectory.turns:
        if fault := version_fault(turn.policy_version, len(turn.completion_ids)):
            raise BatchError(f"turn {turn.index} of trajectory {trajectory.id!r} is broken: {fault}.")


@dataclass(frozen=True, slots=True, eq=False)
class _Rows:
    """Branches flattened: S steps (a turn on a branch), N tokens, B rows."""

    turn_S: Ints
    """Which turn of the batch each step is."""
    first_S: NDArray[np.bool_]
    """A turn on several branches trains on the first of them only; it is mere context on the others."""
    row_S: Ints
    tokens_N: Ints
    piece_N: Ints
    """2s for the context of step s, 2s + 1 for its completion."""
    mu_N: NDArray[np.float32]
    version_N: Ints
    """Of the weights that sampled a completion's token, -1 for an expert's and for context."""
    trajectory_B: Ints
    """Position among the kept trajectories."""


def _flatten(kept: _Kept, skip_idle: bool) -> _Rows:
    """Lay the branches end to end, without those that have nothing to teach if `skip_idle`."""
    pieces: list[Array] = []
    logprobs: list[Array] = []
    versions: list[Ints] = []
    turn_S: list[int] = []
    first_S: list[bool] = []
    steps_B: list[int] = []
    trajectory_B: list[int] = []
    first = 0
    for position, (trajectory, credit) in enumerate(zip(kept.trajectories, kept.credits, strict=True)):
        for branch in _taught(trajectory, credit, skip_idle):
            first_S += [False] * branch.shared + [True] * (len(branch.turns) - branch.shared)
            for turn in branch.turns:
                pieces += (turn.context_ids, turn.completion_ids)
                logprobs.append(turn.logprobs)
                versions.append(turn.versions)
                turn_S.append(first + turn.index)
            steps_B.append(len(branch.turns))
            trajectory_B.append(position)
        first += len(trajectory.turns)
    lengths = np.fromiter(map(len, pieces), np.int64, len(pieces))
    if not np.array_equal(np.fromiter(map(len, logprobs), np.int64, len(logprobs)), lengths[1::2]):
        raise BatchError("a turn has not one log-probability per completion token; its recording is broken.")
    piece_N = np.repeat(np.arange(len(pieces)), lengths)
    mu_N = np.zeros(len(piece_N), np.float32)
    version_N = np.full(len(piece_N), -1, np.int64)
    if pieces:
        sampled_N = piece_N % 2 == 1
        mu_N[sampled_N] = np.concatenate(logprobs)
        version_N[sampled_N] = np.concatenate(versions)
    return _Rows(
        turn_S=np.array(turn_S, np.int64),
        first_S=np.array(first_S, bool),
        row_S=np.repeat(np.arange(len(steps_B)), steps_B),
        tokens_N=np.concatenate(pieces).astype(np.int64) if pieces else np.zeros(0, np.int64),
        piece_N=piece_N,
        mu_N=mu_N,
        version_N=version_N,
        trajectory_B=np.array(trajectory_B, np.int64),
    )


def _taught(trajectory: Trajectory, credit: Credit, skip_idle: bool) -> Iterator[Branch]:
    """Yield the branches that get a row: all, or with `skip_idle` those with something to teach."""
    idle_K = _idle_turns(trajectory, credit).tolist()
    for branch in trajectory.branches():
        own = branch.turns[branch.shared :]
        if not (skip_idle and all(idle_K[turn.index] for turn in own)):
            yield branch


def branches_of_rows(
    trajectories: Sequence[Trajectory], credits: Sequence[Credit]
) -> list[tuple[int, Branch]]:
    """Return of each row of `build_batch`'s batch the trajectory, by its place among those given, and the branch."""
    skips = not any(credit.every_token for credit in credits)
    kept = _choose(trajectories, credits, skips)
    skip_idle = skips and all(credit.return_K is None for credit in credits)
    return [
        (index, branch)
        for index, trajectory, credit in zip(kept.index, kept.trajectories, kept.credits, strict=True)
        for branch in _taught(trajectory, credit, skip_idle)
    ]


def _pack(kept: _Kept, rows: _Rows, pad_to: int) -> TrainBatch:
    turns_K = np.array([len(t.turns) for t in kept.trajectories], np.int64)
    owner_K = np.repeat(np.arange(len(turns_K)), turns_K)
    expert_K = np.array([t.is_expert for t in kept.trajectories], bool)[owner_K]
    positive_K = np.array([c.positive for c in kept.credits], bool)[owner_K]
    advantage_K = _concat([c.advantage_K for c in kept.credits], np.float32)
    imitation_K = _concat([c.imitation_K for c in kept.credits], np.float32)
    return_K, value_K = _critics(kept, "return_K"), _critics(kept, "value_K")
    chunk_K, chunks = _number_chunks(kept, turns_K)
    index_K = np.arange(len(owner_K)) - (np.cumsum(turns_K) - turns_K)[owner_K]

    step_N = rows.piece_N // 2
    turn_N = rows.turn_S[step_N]
    acts_N = (rows.piece_N % 2 == 1) & rows.first_S[step_N]
    sampled_N = acts_N & ~expert_K[turn_N]
    opens_N = sampled_N & (np.diff(rows.piece_N, prepend=-1) != 0)
    oldest_K = np.array([c.oldest for c in kept.credits], np.int64)[owner_K]
    trains_N = sampled_N & (rows.version_N >= oldest_K[turn_N])
    _check_sampled(kept, owner_K[turn_N], rows.mu_N, trains_N)
    row_N = rows.row_S[step_N]
    length_B = np.bincount(row_N, minlength=len(rows.trajectory_B))
    width = -(-int(length_B.max(initial=0)) // pad_to) * pad_to
    starts_B = np.cumsum(length_B) - length_B
    place_N = row_N * width + np.arange(len(row_N)) - starts_B[row_N]
    if acts_N[starts_B[length_B > 0]].any():
        raise BatchError("a completion has no prompt before it; its first token has no probability to train.")

    def lay(values_N: Array, dtype: type[np.generic], empty: int = 0) -> torch.Tensor:
        out = np.full(len(length_B) * width, empty, dtype)
        out[place_N] = values_N
        return torch.from_numpy(out.reshape(len(length_B), width))

    return TrainBatch(
        tokens_BT=lay(rows.tokens_N, np.int64),
        segment_ids_BT=lay(np.ones(len(row_N)), np.int64),
        loss_mask_BT=lay(trains_N, np.bool_),
        rollout_logprobs_BT=lay(np.where(trains_N, rows.mu_N, 0), np.float32),
        prox_logprobs_BT=None,
        advantages_BT=lay(np.where(trains_N, advantage_K[turn_N], 0), np.float32),
        positive_BT=lay(positive_K[turn_N], np.bool_),
        chunk_index_BT=lay(np.where(trains_N, chunk_K[turn_N], -1), np.int64, -1),
        chunks=chunks,
        trajectory_index_B=torch.from_numpy(np.array(kept.index, np.int64)[rows.trajectory_B]),
        imitation_BT=lay(np.where(acts_N, imitation_K[turn_N], 0), np.float32),
        policy_version_BT=lay(np.where(acts_N, rows.version_N, -1), np.int64, -1),
        normalizer=1.0,
        imitation_normalizer=1.0,
        counts=kept.rl,
        imitation_counts=kept.imitation,
        trajectory_tokens_B=torch.from_numpy(np.array(kept.tokens, np.int64)[rows.trajectory_B]),
        group_index_B=torch.from_numpy(_groups(kept, rows)),
        opens_turn_BT=lay(np.where(opens_N, index_K[turn_N], -1), np.int64, -1),
        returns_BT=None if return_K is None else lay(np.where(opens_N, return_K[turn_N], 0), np.float32),
        old_values_BT=None if value_K is None else lay(np.where(opens_N, value_K[turn_N], 0), np.float32),
    )


def _check_sampled(
    kept: _Kept, owner_N: Ints, mu_N: NDArray[np.float32], trains_N: NDArray[np.bool_]
) -> None:
    """Raise `BatchError` for a token to be trained whose log-probability when sampled is not finite."""
    broken_N = trains_N & ~np.isfinite(mu_N)
    if broken_N.any():
        first = int(np.argmax(broken_N))
        raise BatchError(
            f"a sampled token of trajectory {kept.trajectories[owner_N[first]].id!r} has {mu_N[first]} as its "
            f"log-probability (NaN or infinite: {int(broken_N.sum())} of {int(trains_N.sum())} tokens), so every ratio to "
            "it would be meaningless. Nothing was learned from this step: look at the inference engine."
        )


def _critics(kept: _Kept, which: str) -> Array | None:
    """Return a number of the critic's per turn, 0 for experts; None if no credit has one."""
    given = [getattr(credit, which) for credit in kept.credits]
    if all(numbers is None for numbers in given):
        return None
    filled = [
        np.zeros(len(c.advantage_K)) if numbers is None else numbers
        for c, numbers in zip(kept.credits, given, strict=True)
    ]
    numbers_K = _concat(filled, np.float32)
    if not np.isfinite(numbers_K).all():
        raise BatchError(
            f"a credit's {which} is not finite: got {numbers_K!r}, expected a number per turn. Fix the algorithm's "
            "`criticised`."
        )
    return numbers_K


def _groups(kept: _Kept, rows: _Rows) -> Ints:
    """Return every row's group; the rows of experts, which nothing holds together, are groups of their own."""
    group_B = np.array(kept.groups, np.int64)[rows.trajectory_B]
    alone_B = group_B < 0
    return np.where(alone_B, len(kept.groups) + np.arange(len(group_B)), group_B)


def _concat(arrays: Sequence[Array], dtype: type[np.generic]) -> Array:
    return np.concatenate(arrays).astype(dtype) if arrays else np.zeros(0, dtype)


def _number_chunks(kept: _Kept, turns_K: Ints) -> tuple[Ints, int]:
    """Return every turn's chunk, numbered through the batch, and how many there are; experts have none."""
    own = [_chunks(credit) for credit in kept.credits]
    counts = [
        0 if t.is_expert or not len(chunk_K) else int(chunk_K[-1]) + 1
        for t, chunk_K in zip(kept.trajectories, own, strict=True)
    ]
    offset_K = np.repeat(np.cumsum(counts, dtype=np.int64) - counts, turns_K)
    return _concat(own, np.int64) + offset_K, sum(counts)


def split_rows(batch: TrainBatch, parts: int) -> list[TrainBatch]:
    """Return at most `parts` minibatches of whole groups, none empty.

    A group's advantages sum to about zero over what they share, and its rollouts share prompts that are then computed
    once: both hold only while it stays together. Groups and rows of experts are dealt in turn, so that each part gets
    its share of both. Parts keep the batch's normalizers: their losses add up to the batch's.
    """
    return [taken(batch, rows) for rows in rows_of_parts(batch, parts)]


def rows_of_parts(batch: TrainBatch, parts: int) -> list[Ints]:
    """Return the rows of each minibatch that `split_rows` returns."""
    index_B = batch.group_index_B.numpy()
    groups = np.unique(index_B)
    hands = [groups[part::parts] for part in range(min(parts, len(groups)))]
    return [np.flatnonzero(np.isin(index_B, hand)) for hand in hands]


def shuffled_rows(batch: TrainBatch, parts: int, seed: int) -> list[TrainBatch]:
    """Return at most `parts` minibatches of about as many rows each, none empty, in an order drawn from `seed`.

    For imitation, where nothing holds rows together: turns of many experts teach more than as many turns of few. Parts
    keep the batch's normalizers.
    """
    order_B = np.random.default_rng(seed).permutation(len(batch.tokens_BT))
    return [
        taken(batch, np.sort(rows))
        for rows in np.array_split(order_B, min(parts, len(order_B)) or 1)
        if len(rows)
    ]


def microbatches(batch: TrainBatch, max_tokens: int, *, pad_to: int = 8) -> list[TrainBatch]:
    """Return parts of at most `max_tokens` tokens, padding included, shortest rows first, padding trimmed.

    Rows that share a chunk stay together, so a part may exceed `max_tokens` if one such set alone does. Their
    losses and gradients add up to the batch's.
    """
    return [taken(batch, rows) for rows in bins_by_width(batch, max_tokens, pad_to=pad_to)]


def bins_by_width(batch: TrainBatch, max_tokens: int, *, pad_to: int = 8) -> list[Ints]:
    """Return the rows of each part that `microbatches` returns."""
    width_B = -(-batch.segment_ids_BT.ne(0).sum(1).clamp_min(1).cpu().numpy() // pad_to) * pad_to
    bundles = bundles_of(batch)
    widths = np.array([width_B[bundle].max() for bundle in bundles], np.int64)
    bins, rows = list[list[Ints]](), 0
    for at in np.argsort(widths, kind="stable").tolist():
        bundle = bundles[at]
        # Widths rise, so this bundle's is the width of everything taken so far.
        if not bins or (rows + len(bundle)) * int(widths[at]) > max_tokens:
            bins.append([])
            rows = 0
        bins[-1].append(bundle)
        rows += len(bundle)
    return [np.concatenate(each) for each in bins]


def bundles_of(batch: TrainBatch) -> list[Ints]:
    """Return runs of rows that may be separated: no chunk lies on both sides of a cut."""
    rows = len(batch.tokens_BT)
    if rows == 0:
        return []
    mask_BT, index_BT = batch.loss_mask_BT, batch.chunk_index_BT
    if batch.tokens_BT.shape[1] == 0:
        return [np.arange(rows)]
    last_B = torch.where(mask_BT, index_BT, -1).amax(1).cpu().numpy()
    first_B = torch.where(mask_BT, index_BT, batch.chunks).amin(1).cpu().numpy()
    before_B = np.maximum.accumulate(last_B)
    after_B = np.minimum.accumulate(first_B[::-1])[::-1]
    cuts = np.flatnonzero(before_B[:-1] < after_B[1:]) + 1
    return np.split(np.arange(rows), cuts)


def taken(batch: TrainBatch, rows: Ints) -> TrainBatch:
    """Return the rows as a batch of their own, trimmed on the right."""
    index = torch.from_numpy(rows).to(batch.tokens_BT.device)
    length_B = batch.segment_ids_BT[index].ne(0).sum(1)
    width = min(-(-int(length_B.max()) // 8) * 8, batch.tokens_BT.shape[1])
    changes: dict[str, torch.Tensor] = {}
    for each in fields(batch):
        value = getattr(batch, each.name)
        if each.name.endswith("_BT") and value is not None:
            changes[each.name] = value[index, :width]
        elif each.name.endswith("_B") and len(value):
            changes[each.name] = value[index]
    return replace(batch, **changes)  # type: ignore[arg-type]
