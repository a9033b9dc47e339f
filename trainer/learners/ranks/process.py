"""A rank's process: it builds its engine, then answers one call after the other until the pipe closes.

Started by `trainer.learners.ranks.pool`. Rows and losses come through the pipe, weights only through the ranks' own group.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

from trainer.learners.ranks.train import RankTrain

__all__ = ["BuildRank", "serve"]

BuildRank = Callable[[DeviceMesh, torch.device], RankTrain]
"""Builds a rank's engine on its device; every rank begins with the same weights."""

_FROM_EACH = ("learn_at", "logprobs_of", "values_of")
"""Calls whose answers differ from rank to rank; of the others rank 0 alone answers with more than that it is done."""


def serve(
    pipe: Connection, build: BuildRank, kind: str, rank: int, ranks: int, folder: str, threads: int
) -> None:
    """Answer calls. `kind` is `cpu` or `cuda`, `folder` where the ranks find each other."""
    torch.set_num_threads(threads)
    try:
        device = torch.device(kind, rank) if kind == "cuda" else torch.device(kind)
        if kind == "cuda":
            torch.cuda.set_device(device)
        store = f"file://{Path(folder) / 'store'}"
        backend = "cpu:gloo,cuda:nccl" if kind == "cuda" else "gloo"  # moments may lie on the host
        dist.init_process_group(backend, init_method=store, rank=rank, world_size=ranks)
        engine = build(init_device_mesh(kind, (ranks,)), device)
    except Exception as error:  # noqa: BLE001 - whatever it is, the learner must hear of it
        pipe.send((False, _picklable(error)))
        return
    pipe.send((True, None))
    while True:
        try:
            name, arguments = pickle.loads(pipe.recv_bytes())
        except EOFError:  # the learner has ended
            return
        try:
            result = getattr(engine, name)(*arguments)
            answer = (True, result if rank == 0 or name in _FROM_EACH else None)
        except Exception as error:  # noqa: BLE001 - see above
            answer = (False, _picklable(error))
        try:
            pipe.send(answer)
        except BrokenPipeError:
            return


def _picklable(error: Exception) -> Any:
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:  # noqa: BLE001 - an exception of anybody's may refuse to be pickled in any way
        return RuntimeError(f"{type(error).__name__}: {error}")
    return error
