"""Inference over any `PolicyNet`: sort, batch, prefill, then decode with the cache until every row has ended.

Built by the engine plugins (`tiny`, `hf`), called by the inference actor. The result depends on the set of requests and
the weights only: batches are formed in an order of their own, samples are seeded per request.
Shapes: B rows of one batch, T prompt tokens (padded left), N tokens of the longest completion.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from agent_runtime.policy import Completion, SampleRequest, first_stop
from agent_runtime.types import IntArray
from trainer.protocols.engines import Weights
from trainer.protocols.net import Cache, PolicyNet, copy_weights
from trainer.protocols.token_sampler import check_request
from trainer.samplers.arrival import Arrived
from trainer.samplers.proof import digests
from trainer.samplers.sampling import Distribution, next_tokens

__all__ = ["TorchInference"]

_MARGIN_TOKENS = 4
"""A tokenizer may read the first tokens of a cut otherwise: white space that it leaves out, part of a character."""


class TorchInference:
    """An `InferenceEngine` over a network."""

    def __init__(
        self,
        net: PolicyNet,
        *,
        end_id: int,
        max_rows: int,
        device: torch.device | None = None,
        text: Callable[[IntArray], str] | None = None,
    ) -> None:
        """`text` returns what sampled ids say; without it nothing can be stopped at a text."""
        self.net = net
        self._end_id = end_id
        self._max_rows = max_rows
        self._device = device or torch.device("cpu")
        self._text = text
        self._version = 0

    def load(self, weights: Weights, version: int) -> None:
        """Copy new weights in; later completions carry `version`. Raise `InvalidArgument` if they do not fit."""
        copy_weights(self.net, weights)
        self._version = version

    def arrived(self) -> Arrived:
        """Return what it samples with."""
        return Arrived(self._version, digests(dict(self.net.named_parameters())))

    def sample(self, requests: Sequence[SampleRequest]) -> list[Completion]:
        """Return one completion per request, in order. Raise `PolicyError` for a prompt that cannot be continued."""
        for request in requests:
            check_request(request, self.net.max_context, stops=self._text is not None)
        lengths = [len(request.prompt_ids) for request in requests]
        order = sorted(
            range(len(requests)), key=lambda i: (lengths[i], requests[i].rollout_id, requests[i].turn)
        )
        completions: list[Completion | None] = [None] * len(requests)
        for batch in self._batches(order, lengths):
            done = self._run([requests[i] for i in batch])
            for i, completion in zip(batch, done, strict=True):
                completions[i] = completion
        return [completion for completion in completions if completion is not None]

    def _batches(self, order: Sequence[int], lengths: Sequence[int]) -> list[list[int]]:
        """Cut the sorted requests where a batch is full or its padding would exceed about a quarter."""
        batches: list[list[int]] = []
        for i in order:
            batch = batches[-1] if batches else []
            if batch and len(batch) < self._max_rows and lengths[i] <= 1.25 * lengths[batch[0]] + 8:
                batch.append(i)
            else:
                batches.append([i])
        return batches

    def _prefill(self, requests: Sequence[SampleRequest], *, room: int) -> tuple[torch.Tensor, Cache]:
        """Run equal prompts once (rollouts of one task share many) and give every request its row."""
        number: dict[bytes, int] = {}
        prompts: list[IntArray] = []
        row_of: list[int] = []
        for request in requests:
            prompt = np.asarray(request.prompt_ids, np.int32)
            row = number.setdefault(prompt.tobytes(), len(number))
            if row == len(prompts):
                prompts.append(prompt)
            row_of.append(row)
        prompts_BT, mask_BT = _pad_left(prompts)
        logits_BV, cache = self.net.prefill(
            torch.from_numpy(prompts_BT).to(self._device),
            None if mask_BT is None else torch.from_numpy(mask_BT).to(self._device),
            room=room,
        )
        if len(prompts) < len(requests):
            rows = torch.tensor(row_of, device=self._device)
            logits_BV = logits_BV[rows]
            cache.keep(rows)
        return logits_BV, cache

    @torch.inference_mode()
    def _run(self, requests: Sequence[SampleRequest]) -> list[Completion]:
        limits_B = np.array(
            [min(r.params.max_tokens, self.net.max_context - len(r.prompt_ids)) for r in requests]
        )
        ids_BN = np.zeros((len(requests), int(limits_B.max())), np.int32)
        logprobs_BN = np.zeros(ids_BN.shape, np.float32)
        counts_B = np.zeros(len(requests), np.int64)
        entropy_B = np.zeros(len(requests))
        stopped_B = np.zeros(len(requests), np.bool_)
        stopped_by = [""] * len(requests)
        watched = [b for b, request in enumerate(requests) if request.stop]
        logits_BV, cache = self._prefill(requests, room=ids_BN.shape[1] - 1)
        rows = np.arange(len(requests))  # the request each row of the cache belongs to
        how = Distribution.of(requests)
        for position in range(ids_BN.shape[1]):
            tokens, logprobs, entropies = next_tokens(logits_BV, how, position)
            host = tokens.cpu().numpy()
            live = ~stopped_B[rows] & (counts_B[rows] < limits_B[rows])
            ids_BN[rows[live], position] = host[live]
            logprobs_BN[rows[live], position] = logprobs.cpu().numpy()[live]
            entropy_B[rows[live]] += entropies.cpu().numpy()[live]
            counts_B[rows[live]] += 1
            stopped_B[rows[live]] = host[live] == self._end_id
            for b in (b for b in watched if not stopped_B[b]):
                stopped_by[b] = self._stopped(ids_BN[b, : counts_B[b]], requests[b].stop)
                stopped_B[b] = bool(stopped_by[b])
            live &= ~stopped_B[rows] & (counts_B[rows] < limits_B[rows])
            if not live.any():
                break
            if 2 * live.sum() <= len(rows):  # dropping rows copies the cache: worth it once half are gone
                kept = np.flatnonzero(live)
                cache.keep(torch.from_numpy(kept).to(self._device))
                rows, how, tokens = (
                    rows[kept],
                    how.keep(kept),
                    tokens[torch.from_numpy(kept).to(self._device)],
                )
            logits_BV = self.net.decode(tokens, cache)
        return [
            Completion(
                ids=ids_BN[b, : counts_B[b]].copy(),
                logprobs=logprobs_BN[b, : counts_B[b]].copy(),
                finish_reason="stop" if stopped_B[b] else "length",
                policy_version=self._version,
                stopped_by=stopped_by[b],
                entropy=float(entropy_B[b] / counts_B[b]),
            )
            for b in range(len(requests))
        ]

    def _stopped(self, ids: IntArray, stop: Sequence[str]) -> str:
        """Return the stop text that the last token completed. Looks at as many tokens as one can have, and a few more."""
        assert self._text is not None  # checked before sampling
        window = max(len(one.encode()) for one in stop) + _MARGIN_TOKENS
        return first_stop(self._text(ids[-window:]), stop)[1]


def _pad_left(
    prompts: Sequence[IntArray],
) -> tuple[NDArray[np.int64], NDArray[np.bool_] | None]:
    """Return prompts and the mask of real tokens, None when no row is padded."""
    width = max(map(len, prompts))
    if min(map(len, prompts)) == width:
        return np.stack(prompts).astype(np.int64), None
    prompts_BT = np.zeros((len(prompts), width), np.int64)
    mask_BT = np.zeros((len(prompts), width), np.bool_)
    for b, prompt in enumerate(prompts):
        prompts_BT[b, width - len(prompt) :] = prompt
        mask_BT[b, width - len(prompt) :] = True
    return prompts_BT, mask_BT
