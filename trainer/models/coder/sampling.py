"""Sampling from the coder: each turn reads only what is new since the rollout's last one, then chooses token by token.

Built by the `coder` engine, called by the inference actor. The result depends on the requests and the weights; what was
read before only saves reading it again. Shapes: B rows of one batch, T new tokens (padded right), S slots, V spelled tokens.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from agent_runtime.policy import Completion, SampleRequest
from agent_runtime.types import IntArray
from trainer.models.coder.choices import choices
from trainer.models.coder.net import CoderNet, Memory, features, visible
from trainer.models.coder.page import Page, grow, read_page
from trainer.models.coder.words import END
from trainer.protocols.engines import Weights
from trainer.protocols.net import copy_weights
from trainer.protocols.token_sampler import check_request
from trainer.samplers.arrival import Arrived
from trainer.samplers.proof import digests, named_tensors
from trainer.samplers.sampling import Distribution, next_tokens

__all__ = ["CoderInference"]

_ALIKE = 0.7


@dataclass(frozen=True, slots=True, eq=False)
class _Read:
    """What one rollout's last turn left: its tokens, and the row of a memory that holds them."""

    ids: IntArray
    units: int
    memory: Memory
    row: int


class CoderInference:
    """An `InferenceEngine`."""

    def __init__(self, net: CoderNet, *, max_rows: int, kept: int) -> None:
        self.net = net
        self._max_rows = max_rows
        self._kept = kept
        self._version = 0
        self._read: OrderedDict[str, _Read] = OrderedDict()

    def load(self, weights: Weights, version: int) -> None:
        """Copy new weights in; later completions carry `version`. Raise `InvalidArgument` if they do not fit."""
        copy_weights(self.net, weights)
        self._version = version
        self._read.clear()

    def arrived(self) -> Arrived:
        """Return what it samples with."""
        return Arrived(self._version, digests(named_tensors(self.net)))

    def sample(self, requests: Sequence[SampleRequest]) -> list[Completion]:
        """Return one completion per request, in order. Raise `PolicyError` for a prompt that cannot be continued."""
        for request in requests:
            check_request(request, self.net.max_context)
        order = sorted(
            range(len(requests)),
            key=lambda i: (len(requests[i].prompt_ids), requests[i].rollout_id, requests[i].turn),
        )
        completions: dict[int, Completion] = {}
        for begin in range(0, len(order), self._max_rows):
            batch = order[begin : begin + self._max_rows]
            completions |= zip(batch, self._run([requests[i] for i in batch]), strict=True)
        return [completions[i] for i in range(len(requests))]

    @torch.inference_mode()
    def _run(self, requests: Sequence[SampleRequest]) -> list[Completion]:
        words = self.net.words
        prompts = [np.asarray(request.prompt_ids, np.int32) for request in requests]
        limits = [
            min(request.params.max_tokens, self.net.max_context - len(prompt))
            for request, prompt in zip(requests, prompts, strict=True)
        ]
        pages = [read_page(prompt, words) for prompt in prompts]
        slots = max(len(page.at_W) for page in pages) + max(limits)
        memory = Memory.empty(self.net.shape, len(requests), slots)
        known = [self._recall(request, memory, row) for row, request in enumerate(requests)]
        hidden_BD = self._catch_up(pages, known, memory)
        answers: list[list[int]] = [[] for _ in requests]
        logprobs: list[list[float]] = [[] for _ in requests]
        entropies: list[list[float]] = [[] for _ in requests]
        how = Distribution.of(requests)
        live = list(range(len(requests)))
        for position in range(max(limits)):
            options = choices([(pages[b], len(pages[b].ids) - 1) for b in live], words, slots)
            asked_ND = self.net.asked(hidden_BD, options)
            found_NS = torch.einsum("nd,nsd->ns", asked_ND, memory.marks[live])
            spelled_NV, places_NS = self.net.scores(hidden_BD, found_NS, options)
            scores_NC = torch.cat((spelled_NV, _together(places_NS, options.group_NS)), dim=1)
            drawn = next_tokens(scores_NC, how.keep(np.array(live)), position)
            for b, choice, logprob, entropy in zip(live, *(each.tolist() for each in drawn), strict=True):
                unit = choice - words.size
                answers[b].append(choice if unit < 0 else words.size + int(pages[b].at_W[unit]))
                logprobs[b].append(logprob)
                entropies[b].append(entropy)
            live = [b for b in live if answers[b][-1] != END and len(answers[b]) < limits[b]]
            if not live:
                break
            before = [len(pages[b].at_W) for b in live]
            for b in live:
                pages[b] = grow(pages[b], answers[b][-1])
            hidden_BD = self._append([pages[b] for b in live], before, memory, live, slots)
        for b, request in enumerate(requests):
            self._read[request.rollout_id] = _Read(pages[b].ids, len(pages[b].at_W), memory, b)
        while len(self._read) > self._kept:
            self._read.popitem(last=False)
        return [
            Completion(
                ids=np.array(ids, np.int32),
                logprobs=np.array(values, np.float32),
                finish_reason="stop" if ids[-1] == END else "length",
                policy_version=self._version,
                entropy=sum(entropy) / len(entropy),
            )
            for ids, values, entropy in zip(answers, logprobs, entropies, strict=True)
        ]

    def _catch_up(self, pages: Sequence[Page], known: Sequence[int], memory: Memory) -> torch.Tensor:
        """Read each page's units from `known` on, rows with about as many of them together: else padding is most of it."""
        new = [len(page.at_W) - first for page, first in zip(pages, known, strict=True)]
        hidden_BD = torch.empty(len(pages), self.net.shape.width)
        for rows in _alike(new):
            some, firsts = [pages[b] for b in rows], [known[b] for b in rows]
            slots = max(len(page.at_W) for page in some)
            hidden_BD[rows] = self._append(some, firsts, memory, rows, slots)
        return hidden_BD

    def _append(
        self, pages: Sequence[Page], known: Sequence[int], memory: Memory, rows: Sequence[int], slots: int
    ) -> torch.Tensor:
        """Read each page's units from `known` on into its row of the memory; return the state of each page's last (`BD`).

        `slots`: how many slots of the rows hold something afterwards.
        """
        part = memory if len(rows) == len(memory.inner) else _rows(memory, rows, slots)
        slots = part.inner.shape[1]
        new = [len(page.at_W) - first for page, first in zip(pages, known, strict=True)]
        told = features(list(pages), self.net.words, first=list(known), width=max(new))
        mask = torch.from_numpy(visible(list(pages), first=list(known), width=max(new), slots=slots))
        slot_BT = torch.full((len(pages), max(new)), slots)
        for b, first in enumerate(known):
            slot_BT[b, : new[b]] = torch.arange(first, first + new[b])
        hidden_BTD = self.net.go_on(told, mask, part, slot_BT)
        if part is not memory:
            _put(memory, part, rows, known, new)
        return hidden_BTD[torch.arange(len(pages)), torch.tensor(new) - 1]

    def _recall(self, request: SampleRequest, memory: Memory, row: int) -> int:
        """Copy what is still known of the rollout into the row; return how many units of the prompt that covers."""
        read = self._read.pop(request.rollout_id, None)
        if read is None or len(read.ids) >= len(request.prompt_ids):
            return 0
        if not np.array_equal(read.ids, request.prompt_ids[: len(read.ids)]):
            return 0
        memory.copy_row(row, read.memory, read.row, read.units)
        return read.units


def _together(places_NS: torch.Tensor, group_NS: torch.Tensor) -> torch.Tensor:
    """Add up the probabilities of equal words at the first of them."""
    top_N1 = places_NS.amax(dim=1, keepdim=True).clamp_min(-1e30)
    mass_NS = torch.zeros_like(places_NS).scatter_add_(1, group_NS, (places_NS - top_N1).exp())
    return mass_NS.log() + top_N1


def _alike(counts: Sequence[int]) -> list[list[int]]:
    """Return the rows in groups in each of which the smallest count is at least `_ALIKE` of the largest."""
    groups: list[list[int]] = []
    for b in sorted(range(len(counts)), key=lambda b: (-counts[b], b)):
        if groups and counts[b] >= _ALIKE * counts[groups[-1][0]]:
            groups[-1].append(b)
        else:
            groups.append([b])
    return [sorted(group) for group in groups]


def _rows(memory: Memory, rows: Sequence[int], slots: int) -> Memory:
    """Copy the first `slots` tokens of some rows."""
    index = torch.tensor(rows)
    return Memory(
        keys=[each[:, :, :slots][index] for each in memory.keys],
        values=[each[:, :, :slots][index] for each in memory.values],
        inner=memory.inner[:, :slots][index],
        marks=memory.marks[:, :slots][index],
    )


def _put(memory: Memory, part: Memory, rows: Sequence[int], first: Sequence[int], new: Sequence[int]) -> None:
    """Write back the `new` tokens of each row from slot `first` on."""
    count = torch.tensor(new)
    own = torch.repeat_interleave(torch.arange(len(rows)), count)
    begun = torch.repeat_interleave(torch.tensor(first) - count.cumsum(0) + count, count)
    at = begun + torch.arange(len(own))
    index = torch.tensor(rows)[own]
    for whole, some in zip([*memory.keys, *memory.values], [*part.keys, *part.values], strict=True):
        whole[index, :, at] = some[own, :, at]
    memory.inner[index, at] = part.inner[own, at]
    memory.marks[index, at] = part.marks[own, at]
