"""A train engine whose work is done by several ranks: it deals a batch's rows, and puts together what they say.

The learner's process keeps credit, batch, ledger and monitors; the ranks hold the model. Built by the `hf` engine where its
option `ranks` is above 1. A loss goes to the ranks by pickle; what it reported and masked comes back, so that the monitors
count here. Shapes: B rows, T tokens.
"""

from __future__ import annotations

import multiprocessing
import tempfile
import weakref
from collections.abc import Sequence
from dataclasses import replace
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any

import cloudpickle
import torch

from trainer.algo.terms.monitors import Watched
from trainer.data.batch import TrainBatch
from trainer.errors import Lost
from trainer.learners.passes import Pass, passes_of
from trainer.learners.ranks.process import BuildRank, serve
from trainer.learners.ranks.train import OTHERS_REFUSED
from trainer.learners.torch_train import Told
from trainer.protocols.engines import LossFn, OptimOptions, Weights
from trainer.protocols.memory import Part

__all__ = ["RankPool"]

_OTHERS_S = 20.0
"""How long after one rank's error the others may take to answer; they may wait for it for ever."""


class RankPool:
    """A `TrainEngine` of several processes, which end with it."""

    def __init__(self, build: BuildRank, optim: OptimOptions, *, ranks: int, kind: str) -> None:
        """Start the ranks and wait until each has built its engine with `build`, which is pickled. `kind`: `cpu` or `cuda`.

        Raise what a rank raised.
        """
        self._optim = optim
        self.largest: Part | None = None
        self._folder = tempfile.TemporaryDirectory(prefix="ale-ranks-")
        context = multiprocessing.get_context("spawn")
        self._pipes, self._processes = [], []
        for rank in range(ranks):
            ours, theirs = context.Pipe()
            process = context.Process(
                target=serve,
                args=(theirs, build, kind, rank, ranks, self._folder.name, optim.threads),
                name=f"learner rank {rank}",
                daemon=True,
            )
            process.start()
            theirs.close()
            self._pipes.append(ours)
            self._processes.append(process)
        self._end = weakref.finalize(self, _end, self._processes, self._folder)
        self._answers("start")
        self._shares: int = self._call("shared_width", [()] * ranks)[0]

    def close(self) -> None:
        """End the ranks."""
        self._end()

    def step(self, batch: TrainBatch, loss: LossFn, *, lr: float) -> dict[str, float]:
        """One update over the batch, as `TrainEngine.step`; a part of it is at most what each rank gets of the batch."""
        watched = loss if isinstance(loss, Watched) else None
        parts = self._parts(batch)
        given = [(dealt, watched.loss if watched else loss, lr) for dealt in self._dealt(parts)]
        answers = self._call("learn_at", given)
        told = Told()
        for place, part in enumerate(parts):
            self.largest = Part(part.tokens, part.trained).beside(self.largest)
            learned = answers[place % len(given)][0][place // len(given)]
            told.add(learned.output)
            if watched is not None:
                watched.saw(part.batch, learned.logprobs_BT, learned.output)
        return {**told.means(), **answers[0][1], "lr": lr}

    def logprobs(self, batch: TrainBatch, weights: Weights | None = None) -> torch.Tensor:
        """Return log pi_theta of every trained token, as `TrainEngine.logprobs`."""
        return self._asked("logprobs_of", batch, weights)

    def add_critic(self, *, lr: float, seed: int) -> None:
        """Begin a critic at every rank."""
        self._call("begin_critic", [(lr, seed)] * len(self._pipes))

    def values(self, batch: TrainBatch) -> torch.Tensor:
        """Return the critic's values, as `LearnsValues.values`."""
        return self._asked("values_of", batch)

    def weights(self) -> Weights:
        """Return the whole weights."""
        weights: Weights = self._call("weights", [()] * len(self._pipes))[0]
        return weights

    def save(self, folder: Path) -> None:
        """Write whole parameters and optimizer state: a run resumes with any number of ranks."""
        self._call("save", [(folder,)] * len(self._pipes))

    def load(self, folder: Path) -> None:
        """Read what `save` wrote, with this or another number of ranks."""
        self._call("load", [(folder,)] * len(self._pipes))

    def export(self, folder: Path) -> None:
        """Write the model for `--model FOLDER`."""
        self._call("export", [(folder,)] * len(self._pipes))

    def _parts(self, batch: TrainBatch) -> list[Pass]:
        most, ranks = self._optim.microbatch_tokens, len(self._pipes)
        return passes_of(batch, most, shares=self._shares, ranks=ranks)

    def _dealt(self, parts: Sequence[Pass]) -> list[list[TrainBatch | None]]:
        """Return each rank's parts, as many for each; a round's are about as long."""
        ranks = len(self._pipes)
        filled: list[TrainBatch | None] = [*[part.batch for part in parts], *[None] * (-len(parts) % ranks)]
        return [filled[rank::ranks] for rank in range(ranks)]

    def _asked(self, what: str, batch: TrainBatch, *also: Any) -> torch.Tensor:
        result_BT = torch.zeros(batch.tokens_BT.shape)
        parts = self._parts(replace(batch, trajectory_index_B=torch.arange(len(result_BT))))
        answers = self._call(what, [(dealt, *also) for dealt in self._dealt(parts)])
        for place, (part, *_) in enumerate(parts):
            values_BT = answers[place % len(answers)][place // len(answers)]
            result_BT[part.trajectory_index_B, : part.tokens_BT.shape[1]] = values_BT
        return result_BT.to(batch.tokens_BT.device)

    def _call(self, name: str, arguments: Sequence[tuple[Any, ...]]) -> list[Any]:
        for pipe, given in zip(self._pipes, arguments, strict=True):
            try:
                pipe.send_bytes(cloudpickle.dumps((name, given)))
            except OSError as error:
                self.close()
                raise Lost(_ended(name)) from error
        return self._answers(name)

    def _answers(self, name: str) -> list[Any]:
        """Return every rank's answer. Raise what a rank raised; all end where one has, or hangs after another's error."""
        answers: dict[Any, Any] = {}
        errors: list[Exception] = []
        while len(answers) < len(self._pipes):
            ready = wait([p for p in self._pipes if p not in answers], _OTHERS_S if errors else None)
            if not ready:
                self.close()
                break
            for pipe in [pipe for pipe in self._pipes if pipe in ready]:
                try:
                    fine, answers[pipe] = pipe.recv()
                except (EOFError, OSError) as error:
                    self.close()  # what the others said, that a connection broke, follows from this
                    raise Lost(_ended(name)) from (errors or [error])[0]
                if not fine:
                    errors.append(answers[pipe])
        if errors:
            raise next((error for error in errors if not str(error).startswith(OTHERS_REFUSED)), errors[0])
        return [answers[pipe] for pipe in self._pipes]


def _ended(name: str) -> str:
    return (
        f"a rank of the learner ended during {name!r}, for want of memory perhaps; the others were ended, too. Resume the "
        "run, with more ranks or a smaller optim.microbatch_tokens if it happens again."
    )


def _end(processes: Sequence[Any], folder: tempfile.TemporaryDirectory[str]) -> None:
    for process in processes:
        process.kill()
    for process in processes:
        process.join()
    folder.cleanup()
