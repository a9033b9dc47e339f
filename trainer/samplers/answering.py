"""Which sampler answers single requests for an inference engine: the engine's own steps, or whole batches."""

from __future__ import annotations

from trainer.protocols.token_sampler import TokenSampler
from trainer.samplers.batching import AnswersBatches, BatchedSampler
from trainer.samplers.threaded import SteppedBatch, ThreadedSampler

__all__ = ["answering"]


def answering(engine: AnswersBatches, *, stops: bool) -> TokenSampler:
    """Return a sampler over an engine, which is the sampler's own from now on. `stops`: it ends an answer at a text."""
    if isinstance(engine, SteppedBatch):
        return ThreadedSampler(engine)
    return BatchedSampler(engine, stops=stops)
