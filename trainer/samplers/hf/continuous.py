"""Continuous batching over a `RaggedModel`: requests join and leave the running batch between any two tokens.

`step` is one round: let requests in, read a bounded part of new prompts, then one token for every row that is ready. A short
request beside a long one waits for neither. A row whose numbers are not finite fails alone. Single-threaded; `threaded`
stands between it and an event loop. Departure from the field: after new weights a running row is read again from its first
token, so that each token's log-probability is that of a full forward under the version its span names.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from agent_runtime.policy import Completion, PolicyError, SampleRequest, first_stop
from agent_runtime.types import FloatArray, IntArray
from trainer.protocols.net import copy_weights
from trainer.protocols.token_sampler import Aborted, Sampled, VersionSpan, check_request
from trainer.samplers.arrival import Arrived
from trainer.samplers.hf.decode import Decoder
from trainer.samplers.hf.memory import Remembered, SessionMemory, common_prefix
from trainer.samplers.hf.ragged import RaggedModel, rounded
from trainer.samplers.hf.rows import Recall, Row, Rows
from trainer.samplers.proof import digests, named_tensors

__all__ = ["Bounds", "ContinuousBatch", "Outcome"]

Outcome = Sampled | PolicyError
_MARGIN_TOKENS = 4
"""A tokenizer may read the first tokens of a cut otherwise: white space that it leaves out, part of a character."""
_WORTH_WAITING = 32
"""A request waits for a row that is reading at least this many more of its first tokens than are known yet."""
_GRAPH_KEYS = 256
"""Smallest width of a captured step."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """What a sampler may hold and do at once."""

    rows: int = 64
    """Most requests in the running batch; others wait."""
    running_tokens: int = 1 << 18
    """Most tokens that the running rows' cache has room for."""
    remembered_tokens: int = 1 << 18
    """Most tokens whose keys and values are kept over turns; 0 keeps none."""
    prompt_tokens: int = 2048
    """Most new prompt tokens read between two tokens of the running rows."""


class ContinuousBatch:
    """The batch, its cache and the memory of sessions."""

    def __init__(
        self,
        model: RaggedModel,
        *,
        end_id: int,
        bounds: Bounds,
        text: Callable[[IntArray], str] | None = None,
        graphs: bool = True,
    ) -> None:
        """`text` returns what sampled ids say; without it nothing can be stopped at a text."""
        self.model = model
        self.stops = text is not None
        self.version = 0
        self._end_id = end_id
        self._bounds = bounds
        self._text = text
        self._cache = model.cache()
        self.decoder = Decoder(model, self._cache, graphs=graphs)
        self._rows = Rows(bounds.rows, model.max_context, model.device)
        self._waiting: deque[Row] = deque()
        self._ended: list[tuple[int, Outcome]] = []
        self._next = 0
        self.memory = SessionMemory(bounds.remembered_tokens)
        self._room = 0, 0
        """Slots and places of the cache when it was put to sleep."""

    # -- requests ---------------------------------------------------------------------------------------------

    @property
    def busy(self) -> bool:
        """Return whether `step` has something to do."""
        return bool(self._rows.rows or self._waiting or self._ended)

    def submit(self, request: SampleRequest, *, memory: Recall = Recall.ALL) -> int:
        """Let a request wait for its turn; return its ticket. Raise `PolicyError` for one that cannot be answered."""
        self._check(request)
        self._next += 1
        self._waiting.append(Row(self._next, request, memory=memory))
        return self._next

    def _check(self, request: SampleRequest) -> None:
        check_request(request, self.model.max_context, stops=self.stops)
        ids = np.asarray(request.prompt_ids)
        if int(ids.min()) < 0 or int(ids.max()) >= self.model.vocabulary:
            raise PolicyError(
                f"the prompt of rollout {request.rollout_id!r}, turn {request.turn} has an id that the model does not know: "
                f"got {int(ids.min())} to {int(ids.max())}, expected 0 to {self.model.vocabulary - 1}. Render it with the "
                "model's own tokenizer."
            )
        if rounded(self._limit(request)) > self._bounds.running_tokens:
            raise PolicyError(
                f"rollout {request.rollout_id!r}, turn {request.turn} needs room for {self._limit(request)} tokens, the "
                f"sampler has {self._bounds.running_tokens}. Raise cache_tokens or lower max_tokens."
            )

    def abort(self, ticket: int) -> bool:
        """End a request, whose outcome is `Aborted`. Return whether it was there."""
        for row in self._waiting:
            if row.ticket == ticket:
                self._waiting.remove(row)
                self._ended.append((ticket, _aborted(row)))
                return True
        for slot, row in enumerate(self._rows.rows):
            if row.ticket == ticket:
                self._end(slot, _aborted(row))
                return True
        return False

    @torch.inference_mode()
    def step(self) -> list[tuple[int, Outcome]]:
        """Do one round. Return the outcome of each request that ended, by ticket."""
        self._let_in()
        self._read_prompts()
        if (self._rows.unread == 1).any():
            self._decode()
        return self.ended()

    @property
    def cache_token_bytes(self) -> int:
        """Return the bytes of one token's keys and values."""
        return self._cache.bytes_per_token

    def ended(self) -> list[tuple[int, Outcome]]:
        """Return the outcomes that were not returned yet."""
        ended, self._ended = self._ended, []
        return ended

    @torch.inference_mode()
    def load(self, weights: Mapping[str, Any], version: int) -> None:
        """Take new weights. Everything that older ones computed is forgotten; running rows are read again."""
        copy_weights(self.model.model, weights)
        self.version = version
        self._forget()

    @torch.inference_mode()
    def sleep(self) -> None:
        """Give back the memory of keys and values; weights stay. Running rows are read again afterwards."""
        self._forget()
        self._room = self._cache.slots, self._cache.room
        self._cache.resize(0, 0, keep=0)
        self.decoder.forget()
        if self.model.device.type == "cuda":
            torch.cuda.empty_cache()

    @torch.inference_mode()
    def wake(self) -> None:
        """Have room for the rows that were running again."""
        if len(self._rows):
            self._cache.resize(*self._room, keep=0)

    def _forget(self) -> None:
        """Use nothing again that was computed until now."""
        self.memory.clear()
        self._rows.cached_S[:] = 0
        self._rows.touch()

    def arrived(self) -> Arrived:
        """Return what it samples with."""
        return Arrived(self.version, digests(named_tensors(self.model.model)))

    def logprobs(self, ids: IntArray) -> FloatArray:
        """Return log pi of each id after the first, by a full forward under the present weights."""
        found: FloatArray = self.model.logprobs(torch.from_numpy(np.asarray(ids, np.int64))).cpu().numpy()
        return found

    def sample(self, requests: Sequence[SampleRequest]) -> list[Completion]:
        """Answer a batch, in order, without the memory of sessions: a function of requests and weights only.

        Raise the `PolicyError` of the first request that failed.
        """
        return self._answer(requests, Recall.NONE)

    def sample_turns(self, requests: Sequence[SampleRequest]) -> list[Completion]:
        """Answer a batch as `sample` does, and use and keep what was computed for each rollout's own turns."""
        return self._answer(requests, Recall.OWN)

    def _answer(self, requests: Sequence[SampleRequest], memory: Recall) -> list[Completion]:
        for request in requests:
            self._check(request)
        order = sorted(range(len(requests)), key=lambda i: (requests[i].rollout_id, requests[i].turn))
        tickets = {self.submit(requests[i], memory=memory): i for i in order}
        found: dict[int, Completion] = {}
        failed: dict[int, PolicyError] = {}
        while len(found) + len(failed) < len(requests):
            for ticket, outcome in self.step():
                if ticket not in tickets:
                    continue  # of a batch that broke
                if isinstance(outcome, Sampled):
                    found[tickets[ticket]] = outcome.completion()
                else:
                    failed[tickets[ticket]] = outcome
        if failed:
            raise failed[min(failed)]
        return [found[i] for i in range(len(requests))]

    # -- inside -----------------------------------------------------------------------------------------------

    def _limit(self, request: SampleRequest) -> int:
        """Return the most tokens a request's prompt and completion have together."""
        return min(len(request.prompt_ids) + request.params.max_tokens, self.model.max_context)

    def _let_in(self) -> None:
        """Give waiting requests a row, in order, while there is room; who can use what another reads waits for it."""
        put_off: list[Row] = []
        while self._waiting and len(self._rows) < self._rows.slots:
            row = self._waiting.popleft()
            ids = np.asarray(row.request.prompt_ids)
            source, known = self._known(ids)
            if self._is_read_for(ids, known):
                put_off.append(row)
                continue
            kept: Remembered | None = None
            if row.memory is not Recall.NONE:
                mine = row.request.rollout_id if row.memory is Recall.OWN else None
                length, kept = self.memory.find(ids[:-1], mine)
                if length > known:
                    source, known = None, length
            if not self._make_room(len(self._rows) + 1, self._limit(row.request)):
                self._waiting.appendleft(row)
                break
            row.cached_tokens = known
            slot = self._rows.add(row, limit=self._limit(row.request), cached=known)
            if source is not None and known:
                self._cache.copy(source, slot, known)
            elif kept is not None and known:
                self._cache.write(slot, kept.data, known)
        self._waiting.extendleft(reversed(put_off))

    def _known(self, ids: IntArray) -> tuple[int | None, int]:
        """Return the running row with the longest common prefix in the cache, and its length; a prompt's last id is read."""
        best, source = 0, None
        for slot in range(len(self._rows)):
            cached = int(self._rows.cached_S[slot])
            length = common_prefix(self._rows.ids_SC[slot, :cached], ids[:-1])
            if length > best:
                best, source = length, slot
        return source, best

    def _is_read_for(self, ids: IntArray, known: int) -> bool:
        """Return whether a running row is still reading much of what these ids begin with."""
        for slot in np.flatnonzero(self._rows.unread > 1).tolist():
            whole = self._rows.ids_SC[slot, : int(self._rows.length_S[slot]) - 1]
            if common_prefix(whole, ids[:-1]) >= known + _WORTH_WAITING:
                return True
        return False

    def _make_room(self, rows: int, tokens: int) -> bool:
        """Have a cache for so many rows of so many tokens. Return False where it would be too large beside those running."""
        room, slots = max(self._cache.room, rounded(tokens)), self._cache.slots
        if rows <= slots and room == self._cache.room:
            return True
        if rows > slots:  # for those that wait as well: while it grows, there are two caches
            slots = min(1 << (rows + len(self._waiting) - 1).bit_length(), self._bounds.rows)
        slots = max(rows, min(slots, self._bounds.running_tokens // room))
        if slots * room > self._bounds.running_tokens:
            if len(self._rows):
                return False
            slots, room = rows, rounded(tokens)  # which `submit` checked
        self._cache.resize(slots, room, keep=len(self._rows))
        return True

    def _read_prompts(self) -> None:
        """Read the next part of the prompts that are not read yet, but for their last token, which a decoding step reads."""
        unread_R = np.maximum(self._rows.unread - 1, 0)
        left, reading = self._bounds.prompt_tokens, np.flatnonzero(unread_R)
        counts_R = np.zeros(len(unread_R), np.int64)
        # Each gets an equal part; what a short prompt leaves of it goes to the longer ones.
        for done, slot in enumerate(reading[np.argsort(unread_R[reading], kind="stable")].tolist()):
            counts_R[slot] = min(int(unread_R[slot]), max(1, left // (len(reading) - done)))
            left -= int(counts_R[slot])
        low = 0
        while low < len(counts_R):
            if not counts_R[low]:
                low += 1
                continue
            high = (
                low + 1
            )  # neighbours are read together while the padding that they bring stays below a quarter
            while high < len(counts_R) and counts_R[high] and _alike(counts_R[low : high + 1]):
                high += 1
            self._read(low, high, counts_R[low:high])
            low = high

    def _read(self, low: int, high: int, counts_R: NDArray[np.int64]) -> None:
        rows, device = self._rows, self.model.device
        starts_R = rows.cached_S[low:high]
        step_N = np.arange(int(counts_R.max()))
        at_RN = np.minimum(starts_R[:, None] + step_N, self.model.max_context - 1)
        tokens_RN = rows.ids_SC[np.arange(low, high)[:, None], at_RN].astype(np.int64)
        keys = min(rounded(int((starts_R + counts_R).max())), self._cache.room)
        self.model.advance(
            self._cache,
            slice(low, high),
            torch.from_numpy(tokens_RN).to(device),
            torch.from_numpy(starts_R.copy()).to(device),
            torch.from_numpy(counts_R).to(device),
            keys=keys,
        )
        rows.cached_S[low:high] += counts_R
        rows.touch()

    def _decode(self) -> None:
        """Sample one token for every row that is ready. One word from the device for all of them."""
        rows, count = self._rows, len(self._rows)
        ready_R = rows.unread == 1
        whole, real = rows.on_device()
        keys = self._keys(int(rows.cached_S[:count].max()) + 1)
        drawn = self.decoder.step(whole, real, rows=count, keys=keys, cut=rows.cuts).cpu().numpy()
        at = np.flatnonzero(ready_R)
        places = rows.length_S[at]
        rows.ids_SC[at, places] = drawn[0, at].astype(np.int32)
        rows.logprobs_SC[at, places] = drawn[1, at]
        rows.length_S[at] += 1
        rows.cached_S[at] += 1
        self._note_versions(at)
        stopped_R = ready_R & (drawn[0] == self._end_id)
        broken_R = ready_R & ~np.isfinite(drawn[1])
        over_R = ready_R & (rows.length_S[:count] >= rows.limit_S[:count])
        told = {
            slot: text
            for slot in at.tolist()
            if rows.rows[slot].request.stop and not stopped_R[slot] and (text := self._stopped_by(slot))
        }
        ending = set(np.flatnonzero(stopped_R | broken_R | over_R).tolist()) | told.keys()
        for slot in sorted(ending, reverse=True):  # the last first: removing moves the last row only
            if broken_R[slot]:
                self._end(slot, _broken(rows.rows[slot]), clear=True)
            else:
                self._end(slot, self._outcome(slot, stopped=bool(stopped_R[slot]), text=told.get(slot, "")))

    def _keys(self, tokens: int) -> int:
        """Return how many places of each row a step looks at: few different numbers where a graph is captured for each."""
        if self.decoder.graphs:
            return min(max(_GRAPH_KEYS, 1 << (tokens - 1).bit_length()), self._cache.room)
        return min(rounded(tokens), self._cache.room)

    def _note_versions(self, at: NDArray[np.int64]) -> None:
        for slot in at.tolist():
            spans = self._rows.rows[slot].spans
            if not spans or spans[-1][0] != self.version:
                spans.append([self.version, int(self._rows.length_S[slot] - 1 - self._rows.prompt_S[slot])])

    def _stopped_by(self, slot: int) -> str:
        """Return the stop text that the last token completed. Looks at as many tokens as one can have, and a few more."""
        assert self._text is not None  # checked when it was submitted
        stop, end = self._rows.rows[slot].request.stop, int(self._rows.length_S[slot])
        window = max(len(one.encode()) for one in stop) + _MARGIN_TOKENS
        start = max(int(self._rows.prompt_S[slot]), end - window)
        return first_stop(self._text(self._rows.ids_SC[slot, start:end]), stop)[1]

    def _outcome(self, slot: int, *, stopped: bool, text: str) -> Sampled:
        rows = self._rows
        row, start, end = rows.rows[slot], int(rows.prompt_S[slot]), int(rows.length_S[slot])
        borders = [*(first for _, first in row.spans), end - start]
        return Sampled(
            ids=rows.ids_SC[slot, start:end].copy(),
            logprobs=rows.logprobs_SC[slot, start:end].copy(),
            finish_reason="stop" if stopped or text else "length",
            spans=tuple(
                VersionSpan(version, first, last)
                for (version, first), last in zip(row.spans, borders[1:], strict=True)
            ),
            cached_tokens=row.cached_tokens,
            stopped_by=text,
        )

    @torch.inference_mode()
    def _end(self, slot: int, outcome: Outcome, *, clear: bool = False) -> None:
        """Report a row's outcome, remember its session and free its slot."""
        rows = self._rows
        row, cached = rows.rows[slot], int(rows.cached_S[slot])
        if row.memory is not Recall.NONE and not clear and self.memory.wants(cached):
            ids = rows.ids_SC[slot, :cached].copy()
            self.memory.keep(Remembered(row.request.rollout_id, ids, self._cache.read(slot, cached)))
        if clear:
            self._cache.clear(slot)
        last = rows.remove(slot)
        if last != slot:
            self._cache.copy(last, slot, int(rows.cached_S[slot]))
        self._ended.append((row.ticket, outcome))


def _alike(counts_R: NDArray[np.int64]) -> bool:
    return int(counts_R.max()) <= 1.25 * int(counts_R.min()) + 8


def _aborted(row: Row) -> Aborted:
    return Aborted(f"the request of rollout {row.request.rollout_id!r}, turn {row.request.turn} was aborted.")


def _broken(row: Row) -> PolicyError:
    return PolicyError(
        f"the policy's logits are not finite for rollout {row.request.rollout_id!r}, turn {row.request.turn}. Where others "
        "fail, too, its weights are broken: resume from a checkpoint."
    )
