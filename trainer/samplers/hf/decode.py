"""One decoding step of all running rows: forward, draw, and the columns moved on, without a word from the host.

On CUDA the step is captured as a graph per shape, because a small model's kernels take less time than launching them.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import torch

from trainer.samplers.drawing import draw
from trainer.samplers.hf.ragged import RaggedCache, RaggedModel

__all__ = ["Decoder"]

_log = logging.getLogger(__name__)


class Decoder:
    """Runs decoding steps over one cache."""

    def __init__(self, model: RaggedModel, cache: RaggedCache, *, graphs: bool) -> None:
        self._model = model
        self._cache = cache
        self.graphs = graphs and model.device.type == "cuda"
        """Whether steps are captured; turns False where capturing failed."""
        self._captured: dict[tuple[int, int, bool], tuple[torch.cuda.CUDAGraph, torch.Tensor]] = {}
        self._of: tuple[int, torch.Size] = 0, torch.Size()
        self._pool: Any = None

    def step(
        self, whole: torch.Tensor, real: torch.Tensor, *, rows: int, keys: int, cut: bool
    ) -> torch.Tensor:
        """Append each ready row's last id to the cache and draw its next; return ids and log-probabilities (`[2, rows]`,
        float64). `whole` and `real` are those of `Rows.on_device`, moved on by the step. Rows that are not ready are
        computed too, and change nothing that counts.
        """
        if not self.graphs:
            return self._run(whole, real, rows=rows, keys=keys, cut=cut)
        of = self._cache.data.data_ptr(), self._cache.data.shape
        if self._of != of:
            self.forget()  # they write to where the cache was
            self._of = of
        padded = min(1 << (rows - 1).bit_length(), self._cache.slots)
        shape = padded, keys, cut
        if shape not in self._captured and not self._capture(shape, whole, real):
            return self._run(whole, real, rows=rows, keys=keys, cut=cut)
        graph, out = self._captured[shape]
        graph.replay()
        return out[:, :rows]

    def _run(
        self, whole: torch.Tensor, real: torch.Tensor, *, rows: int, keys: int, cut: bool
    ) -> torch.Tensor:
        last, start, index, seed, ready = whole[:, :rows].unbind()
        logits_RV = self._model.advance(
            self._cache, slice(0, rows), last[:, None].clone(), start.clone(), None, keys=keys
        )
        tokens, logprobs = draw(logits_RV, seed, index, real[0, :rows], real[1, :rows], cut=cut)
        last.copy_(torch.where(ready == 1, tokens, last))
        start.add_(ready)
        index.add_(ready)
        return torch.stack((tokens.double(), logprobs.double()))

    def _capture(self, shape: tuple[int, int, bool], whole: torch.Tensor, real: torch.Tensor) -> bool:
        """Capture a step of this shape. Return False where this model cannot be captured."""
        rows, keys, cut = shape
        before = whole.clone()

        def run() -> torch.Tensor:
            return self._run(whole, real, rows=rows, keys=keys, cut=cut)

        try:
            self._warm_up(run, whole, before)
            graph = torch.cuda.CUDAGraph()
            self._pool = (
                self._pool or torch.cuda.graph_pool_handle()
            )  # one for all: each result is read before the next
            with torch.cuda.graph(graph, pool=self._pool, capture_error_mode="thread_local"):
                out = run()
        except RuntimeError as error:
            _log.warning("decoding without CUDA graphs, which is slower: %s", str(error).splitlines()[0])
            self.graphs = False
            self.forget()
            whole.copy_(before)
            return False
        whole.copy_(before)
        self._captured[shape] = graph, out
        return True

    def forget(self) -> None:
        """Forget all captured steps, and their memory: a pool that no graph holds any more takes no new one."""
        self._captured.clear()
        self._pool = None

    def _warm_up(self, run: Callable[[], torch.Tensor], whole: torch.Tensor, before: torch.Tensor) -> None:
        """Run on a stream of its own, as capturing asks; what it wrote to the cache is what the real step writes."""
        stream: Any = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(2):
                run()
                whole.copy_(before)
        torch.cuda.current_stream().wait_stream(stream)
