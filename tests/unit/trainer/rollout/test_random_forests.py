"""Random trees of turns, random credit and chunks: however rows are left out or cut, one gradient, a closed account."""

from __future__ import annotations

from dataclasses import replace
from itertools import count

import numpy as np
import pytest
import torch
from algo_cases import SPECS
from algo_reference import CONTEXT, TABLE, tables, trajectory

from agent_runtime.types import VersionTokens
from trainer.algo.base import Credit
from trainer.algo.terms.monitors import Monitors
from trainer.data.build import build_batch, microbatches, split_rows

MU, PROX, PI = tables()
VALUES = np.sin(np.arange(TABLE))
SETTINGS = [
    ("ipa", {"neg_weight": 1, "reward_fail": -1, "mask_high": 1.5, "mask_low": 0.6}),
    ("gspo", {}),
    ("topr", {}),
    ("grpo", {"correction": "tis_sequence"}),
    ("rloo", {"correction": "geometric_chunk"}),
    ("cispo", {"correction": "mis_sequence"}),
    ("ppo", {}),
    ("grpo", {"kl_weight": 0.1}),
    ("reinforce", {"correction": "icepop", "kl_weight": 0.1, "kl_place": "reward"}),
]


def forest(rng, name, options):
    """Return a few trajectories, each a forest of turns, and credits with many zeros, chunks of any size and tokens that are
    too old."""
    ids, group, credits = count(CONTEXT + 1), [], []
    for n in range(rng.integers(1, 6)):
        turns, expert = int(rng.integers(1, 7)), bool(rng.random() < 0.2)
        parents = [None if k == 0 or rng.random() < 0.25 else int(rng.integers(k)) for k in range(turns)]
        lengths = rng.integers(0, 4, turns).tolist()
        group.append(
            trajectory(
                str(n), lengths, 1.0, ids=ids, group=f"g{n % 2}", mu=MU, parents=parents, expert=expert
            )
        )
        weight_K, zeros = np.where(rng.random(turns) < 0.4, 0.0, rng.normal(size=turns)), np.zeros(turns)
        dropped = "" if rng.random() < 0.85 else "any"
        if expert:
            credits.append(Credit(zeros, True, np.abs(weight_K), dropped))
            continue
        credit = Credit(
            weight_K, bool(rng.random() < 0.5), zeros, dropped, every_token="kl_weight" in options
        )
        if rng.random() < 0.5:
            group[-1] = replace(group[-1], turns=tuple(over_two(turn, rng) for turn in group[-1].turns))
            credit = replace(credit, oldest=int(rng.integers(3, 9)))
        if rng.random() < 0.8:
            credit = replace(credit, chunk_K=np.sort(rng.integers(0, turns, turns)))
        if name == "ppo":
            credit = replace(credit, value_K=rng.normal(size=turns), return_K=rng.normal(size=turns))
        credits.append(credit)
    return group, credits


def over_two(turn, rng):
    """Return the turn with its tokens over two versions, where it has more than one."""
    tokens = len(turn.completion_ids)
    if tokens < 2:
        return turn
    old = int(rng.integers(1, tokens))
    return replace(turn, policy_version=(VersionTokens(4, old), VersionTokens(6, tokens - old)))


def learned(algorithm, group, credits, *, skip=True, cut=lambda batch: [batch]):
    """Return loss and gradient by token; raise `LedgerError` where the account does not close."""
    batch, ledger = build_batch(group, credits, token_budget=9, skip_zero_credit=skip)
    batch = replace(
        batch,
        prox_logprobs_BT=torch.tensor(PROX)[batch.tokens_BT],
        advantages_BT=batch.advantages_BT.double(),
        values_BT=torch.tensor(VALUES)[batch.tokens_BT],
    )
    monitors = Monitors(skip_zero_credit=skip and not any(credit.every_token for credit in credits))
    table, loss = torch.tensor(PI, requires_grad=True), torch.zeros(())
    for part in cut(batch):
        loss = loss + monitors.watch(algorithm.loss)(part, table[part.tokens_BT]).loss
    if loss.requires_grad:
        loss.backward()
    ledger.after_losses(trained=monitors.trained, imitated=monitors.imitated, masked=monitors.masked)
    return loss.item(), np.zeros(TABLE) if table.grad is None else table.grad.numpy()


@pytest.mark.parametrize(("name", "options"), SETTINGS)
def test_rows_left_out_and_parts_cut_change_no_gradient(name, options):
    spec, _ = SPECS[name]
    algorithm = spec.build(spec.options(**options))
    rng = np.random.default_rng(len(name))
    moved = 0
    for _ in range(25):
        group, credits = forest(rng, name, options)
        loss, grad = learned(algorithm, group, credits)
        moved += grad.any()
        for way in (
            {"skip": False},
            {"cut": lambda batch: microbatches(batch, 8)},
            {"cut": lambda batch: [p for half in split_rows(batch, 2) for p in microbatches(half, 16)]},
        ):
            other = learned(algorithm, group, credits, **way)
            assert other[0] == pytest.approx(loss, abs=1e-9)
            np.testing.assert_allclose(other[1], grad, atol=1e-9)
    assert moved > 10
