"""What each of two ranks does in the tests of FSDP2; runs in processes of their own."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
from learner_cases import learner, llama, rows_of, weighted_likelihood
from torch.distributed.device_mesh import init_device_mesh

from trainer.algo.base import LossOutput
from trainer.data.batch import TrainBatch
from trainer.data.build import microbatches
from trainer.learners.parallel.base import SpreadNet
from trainer.learners.parallel.fsdp2 import PARALLELISM
from trainer.learners.ranks.train import RankTrain
from trainer.learners.recompute import recompute_layers
from trainer.models.hf import HFNet
from trainer.protocols.engines import OptimOptions

LENGTHS = ([40, 9, 23, 40, 17], [12], [30, 5, 7])
"""Of three updates: several parts for each rank, one part alone so that a rank has nothing, uneven ones."""
PART_TOKENS = 64


def model() -> object:
    return llama(tie_word_embeddings=True)


def dealt(batch: TrainBatch, rank: int, ranks: int) -> list[TrainBatch | None]:
    parts: list[TrainBatch | None] = [*microbatches(batch, PART_TOKENS)]
    parts += [None] * (-len(parts) % ranks)
    return parts[rank::ranks]


def not_a_number(batch: TrainBatch, logprobs_BT: torch.Tensor) -> LossOutput:
    return LossOutput(logprobs_BT.sum() * torch.nan)


def run(rank: int, ranks: int, folder: str) -> None:
    """Train three updates as one of several ranks; write what rank 0 and its checkpoint say."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=ranks)
    mesh = init_device_mesh("cpu", (ranks,))

    def built() -> RankTrain:
        made = model()
        recompute_layers(made)
        net = HFNet(made, max_context=64)
        spread = PARALLELISM.spread(net, mesh, OptimOptions(), False)
        return RankTrain(
            SpreadNet(net, spread, torch.device("cpu")), OptimOptions(), export=lambda path: None
        )

    train, norms, losses = built(), [], []
    train.add_critic(lr=1e-3, seed=0)
    for lengths in LENGTHS:
        batch = rows_of(lengths, seed=len(lengths))
        told, norm = train.learn(dealt(batch, rank, ranks), weighted_likelihood, lr=1e-3)
        norms.append(norm["grad_norm"])
        losses.append([float(each.output.loss) for each in told if each is not None])
    before = train.weights()
    refused = ""
    try:
        train.learn([rows_of([9]) if rank == 0 else None], not_a_number, lr=1e-3)
    except FloatingPointError as error:
        refused = str(error)
    nothing = train.learn([None], weighted_likelihood, lr=1e-3)[1]
    after = train.weights()
    asked = train.logprobs_of([rows_of([9, 14]) if rank == 1 else None])[0]
    held = sum(value.to_local().numel() for _, value in train.net.named_parameters())
    (Path(folder) / "saved").mkdir(exist_ok=True)
    train.save(Path(folder) / "saved")
    dist.barrier()
    resumed = built()
    resumed.add_critic(lr=1e-3, seed=0)
    resumed.load(Path(folder) / "saved")
    again = resumed.weights()
    np.savez(Path(folder) / f"weights{rank}.npz", **after)
    said = {
        "norms": norms,
        "losses": losses,
        "refused": refused,
        "nothing": nothing["grad_norm"],
        "held": held,
        "unmoved": all(np.array_equal(before[name], after[name]) for name in before),
        "resumed": all(np.array_equal(again[name], after[name]) for name in after),
        "asked": None if asked is None else asked.tolist(),
    }
    (Path(folder) / f"said{rank}.json").write_text(json.dumps(said))
    dist.destroy_process_group()


def alone() -> tuple[dict[str, np.ndarray], list[dict[str, float]], object]:
    """Take the same updates in one process."""
    single = learner(model(), microbatch_tokens=PART_TOKENS)
    history = [
        single.step(rows_of(lengths, seed=len(lengths)), weighted_likelihood, lr=1e-3) for lengths in LENGTHS
    ]
    return single.weights(), history, single
