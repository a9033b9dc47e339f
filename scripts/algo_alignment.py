"""Print how far each algorithm's loss and gradient are from an independent NumPy float64 reference.

The rows of docs/algorithms.md, "Alignment", are this script's output: `python scripts/algo_alignment.py`, from the
repository's root. Settings and references are those of the tests (`tests/unit/trainer/algo_cases.py`), on ragged groups with
empty turns, forks, windows, failures and experts. A unit test compares the page's rows with what is installed.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import numpy as np

from trainer.data.batch import TrainBatch

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "unit" / "trainer"))

from algo_cases import CASES, SPECS, Case
from algo_reference import batch_for, differentiated, in_float64, ragged_group, tables
from family_reference import family_group

HEADER = ("algorithm", "settings", "largest gradient", "loss differs by", "gradient differs by", "in float32")


def measure(case: Case) -> tuple[float, float, float, float]:
    """Return the largest gradient, by how much loss and gradient differ from it, and the gradient in float32."""
    mu, prox, pi = tables()
    algorithm = case.build()
    group = ragged_group(mu) if case.name in ("ipa", "bc") else family_group(mu)
    built = batch_for(algorithm, group, prox)
    loss, grad = differentiated(algorithm, in_float64(algorithm, group, built), pi)
    _, single = differentiated(algorithm, in_float32(built), pi.astype(np.float32))
    wanted_loss, wanted_grad = case.reference(group, mu, prox, pi, algorithm.options)
    return (
        float(np.abs(wanted_grad).max()),
        abs(loss - wanted_loss),
        float(np.abs(grad - wanted_grad).max()),
        float(np.abs(single - wanted_grad).max()),
    )


def in_float32(batch: TrainBatch) -> TrainBatch:
    """Return the batch as a train engine has it."""
    assert batch.prox_logprobs_BT is not None
    assert batch.reference_logprobs_BT is not None
    assert batch.old_logprobs_BT is not None
    return replace(
        batch,
        prox_logprobs_BT=batch.prox_logprobs_BT.float(),
        reference_logprobs_BT=batch.reference_logprobs_BT.float(),
        old_logprobs_BT=batch.old_logprobs_BT.float(),
        values_BT=None if batch.values_BT is None else batch.values_BT.float(),
    )


def rows() -> list[str]:
    """Return one Markdown row per algorithm: the largest over its settings."""
    table = []
    for name in SPECS:
        measured = [measure(case) for case in CASES if case.name == name]
        size, loss, grad, single = (max(column) for column in zip(*measured, strict=True))
        table.append(f"| `{name}` | {len(measured)} | {size:.2g} | {loss:.0e} | {grad:.0e} | {single:.0e} |")
    return table


def main() -> None:
    """Print the table."""
    print("| " + " | ".join(HEADER) + " |")
    print("|---" * len(HEADER) + "|")
    print("\n".join(rows()))


if __name__ == "__main__":
    main()
