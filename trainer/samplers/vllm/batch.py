"""vLLM's engine as a batch that advances token by token: ids in, ids out, no tokenizer.

Requests join and leave between two tokens; vLLM keeps the keys and values of earlier prompts and finds them again by their
first tokens. New weights are copied into its own memory; everything computed with older ones is dropped, and running
requests are read again from their first token. Single-threaded; `threaded` stands between it and an event loop.
"""

from __future__ import annotations

import math
import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from agent_runtime.policy import Completion, PolicyError, SampleRequest, first_stop
from agent_runtime.types import IntArray
from rock_env.errors import InvalidArgument
from trainer.protocols.net import copy_tensors
from trainer.protocols.token_sampler import Aborted, Sampled, VersionSpan, check_request
from trainer.samplers.arrival import Arrived
from trainer.samplers.proof import digests
from trainer.samplers.vllm.tensors import check_given, computing_with_weights, named_views

__all__ = ["VllmBatch", "VllmBounds"]

Outcome = Sampled | PolicyError
_BLOCK = 32
"""Tokens whose keys and values are kept together, the least that vLLM's CPU kernels take. A prompt is found again by
whole ones."""
_MARGIN_TOKENS = 4
"""A tokenizer may read the first tokens of a cut otherwise: white space that it leaves out, part of a character."""
_GET_IT = (
    "Install it: on a machine with CUDA `pip install 'ale-rl[train,vllm]'`; for the processor scripts/vllm_cpu.sh makes an "
    "environment with it."
)


@dataclass(frozen=True, slots=True)
class VllmBounds:
    """What a sampler may hold and do at once."""

    max_context: int
    rows: int
    """Most requests in the running batch; others wait."""
    cache_bytes: int
    """Memory for keys and values, of running requests and of prompts that may come again."""


@dataclass(slots=True)
class _Row:
    """One request and what it got so far."""

    request: SampleRequest
    ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    spans: list[tuple[int, int]] = field(default_factory=list)
    """(version, first of its tokens)"""
    cached_tokens: int | None = None


class VllmBatch:
    """Implements `SteppedBatch`, `InferenceEngine`, `StatesWeights` and `Sleeps`."""

    stops = True

    def __init__(
        self, model: str, *, dtype: str, end_id: int, bounds: VllmBounds, text: Callable[[IntArray], str]
    ) -> None:
        """Load a model's folder. `text` returns what sampled ids say, for stop texts; an `end_id` below 0 ends nothing.

        Raise `InvalidArgument`, also where vLLM is not installed.
        """
        self.version = 0
        self._end_id, self._bounds, self._text = end_id, bounds, text
        self._engine, self._params = _started(model, dtype, bounds)
        (net,) = self._engine.collective_rpc(lambda worker: worker.model_runner.get_model())
        self._views = named_views(net)
        self._rows: dict[int, _Row] = {}
        self._ended: list[tuple[int, Outcome]] = []
        self._next = 0

    @property
    def busy(self) -> bool:
        """Return whether `step` has something to do."""
        return bool(self._rows or self._ended)

    def submit(self, request: SampleRequest) -> int:
        """Let a request wait for its turn; return its ticket. Raise `PolicyError`."""
        check_request(request, self._bounds.max_context, stops=True)
        ticket = self._next
        self._next += 1
        params = request.params
        wanted = self._params(
            temperature=params.temperature,
            top_p=params.top_p,
            max_tokens=min(params.max_tokens, self._bounds.max_context - len(request.prompt_ids)),
            seed=request.seed,
            stop_token_ids=[self._end_id] if self._end_id >= 0 else [],
        )
        self._engine.add_request(str(ticket), {"prompt_token_ids": request.prompt_ids.tolist()}, wanted)
        self._rows[ticket] = _Row(request)
        return ticket

    def abort(self, ticket: int) -> bool:
        """End a request: its outcome is `Aborted`. Return whether it was there."""
        row = self._rows.pop(ticket, None)
        if row is None:
            return False
        self._engine.abort_request([str(ticket)])
        told = f"turn {row.request.turn} of rollout {row.request.rollout_id!r} was aborted."
        self._ended.append((ticket, Aborted(told)))
        return True

    def ended(self) -> list[tuple[int, Outcome]]:
        """Return outcomes that are known without a step."""
        found, self._ended = self._ended, []
        return found

    def step(self) -> list[tuple[int, Outcome]]:
        """Compute one round; return the outcomes of the requests that ended."""
        if not self._rows:
            return self.ended()
        for output in self._engine.step():
            ticket = int(output.request_id)
            if ticket in self._rows:
                self._take(ticket, output)
        return self.ended()

    def load(self, weights: Mapping[str, Any], version: int) -> None:
        """Take new weights in place and drop what older ones computed. Raise `InvalidArgument`; nothing changed then."""
        check_given(self._views, weights)
        with torch.inference_mode():
            copy_tensors({name: self._views[name] for name in weights}, weights)
        self._forget()
        self.version = version

    def sleep(self) -> None:
        """Forget keys and values. On CUDA vLLM gives back its memory of them, and of its weights, which go to the host."""
        self._forget()
        if torch.cuda.is_available():  # not run: there was no device at hand
            self._engine.sleep(level=1, mode="keep")

    def wake(self) -> None:
        """Take the memory again; weights lie where they lay."""
        if torch.cuda.is_available():  # not run, either
            self._engine.wake_up()

    def arrived(self) -> Arrived:
        """Return what it samples with."""
        return Arrived(self.version, digests(self._views))

    def sample(self, requests: Sequence[SampleRequest]) -> list[Completion]:
        """Answer a batch, in order, without what earlier prompts left. Raise the `PolicyError` of one that failed."""
        self._forget()
        return self.sample_turns(requests)

    def sample_turns(self, requests: Sequence[SampleRequest]) -> list[Completion]:
        """Answer a batch, in order. Raise the `PolicyError` of one that failed."""
        for request in requests:
            check_request(request, self._bounds.max_context, stops=True)
        tickets = [self.submit(request) for request in requests]
        found: dict[int, Outcome] = {}
        while len(found) < len(tickets):
            found.update(self.step())
        for ticket in tickets:
            outcome = found[ticket]
            if isinstance(outcome, PolicyError):
                raise outcome
        return [done.completion() for ticket in tickets if isinstance(done := found[ticket], Sampled)]

    def close(self) -> None:
        """Give back vLLM's memory and process groups: the next one in this process needs them."""
        self._engine.engine_core.shutdown()

    # -- inside -----------------------------------------------------------------------------------------------

    def _forget(self) -> None:
        """Drop all keys and values; running requests are read again."""
        if not self._engine.reset_prefix_cache(reset_running_requests=True):
            raise RuntimeError(
                "vLLM still holds keys and values of older weights: its prefix cache was not reset."
            )

    def _take(self, ticket: int, output: Any) -> None:
        """Note a request's new tokens, and end it where they end it."""
        row, answer = self._rows[ticket], output.outputs[0]
        if row.cached_tokens is None:
            row.cached_tokens = int(output.num_cached_tokens or 0)
        for token, among in zip(answer.token_ids, answer.logprobs or (), strict=True):
            if not row.spans or row.spans[-1][0] != self.version:
                row.spans.append((self.version, len(row.ids)))
            row.ids.append(int(token))
            row.logprobs.append(float(among[token].logprob))
        request = row.request
        if not all(map(math.isfinite, row.logprobs[-len(answer.token_ids) :])):
            told = f"turn {request.turn} of rollout {request.rollout_id!r} has a log-probability that is no number."
            self._end(ticket, PolicyError(told), running=not output.finished)
            return
        stopped = bool(row.ids) and row.ids[-1] == self._end_id
        text = "" if stopped or not request.stop else self._stopped_by(row)
        if output.finished or text:
            self._end(ticket, _sampled(row, stopped=stopped, text=text), running=not output.finished)

    def _stopped_by(self, row: _Row) -> str:
        """Return the stop text that the last token completed."""
        window = max(len(one.encode()) for one in row.request.stop) + _MARGIN_TOKENS
        return first_stop(self._text(np.array(row.ids[-window:], np.int32)), row.request.stop)[1]

    def _end(self, ticket: int, outcome: Outcome, *, running: bool) -> None:
        if running:
            self._engine.abort_request([str(ticket)])
        del self._rows[ticket]
        self._ended.append((ticket, outcome))


def _sampled(row: _Row, *, stopped: bool, text: str) -> Sampled:
    ends = [*(first for _, first in row.spans[1:]), len(row.ids)]
    return Sampled(
        ids=np.array(row.ids, np.int32),
        logprobs=np.minimum(np.array(row.logprobs, np.float32), 0),
        finish_reason="stop" if stopped or text else "length",
        spans=tuple(
            VersionSpan(version, first, last) for (version, first), last in zip(row.spans, ends, strict=True)
        ),
        cached_tokens=row.cached_tokens or 0,
        stopped_by=text,
    )


def _started(model: str, dtype: str, bounds: VllmBounds) -> tuple[Any, Callable[..., Any]]:
    """Return vLLM's engine in this process, and what makes its sampling parameters."""
    os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"  # its own process would be out of reach of the weights
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "WARNING")
    os.environ.setdefault("VLLM_NO_USAGE_STATS", "1")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of what it imports
        try:
            from vllm import EngineArgs, SamplingParams
            from vllm.sampling_params import RequestOutputKind
            from vllm.v1.engine.llm_engine import LLMEngine
        except ImportError as error:
            raise InvalidArgument(
                f"the vllm sampler needs vLLM, which is not here: {error}. {_GET_IT}"
            ) from error
        about = EngineArgs(
            model=model,
            skip_tokenizer_init=True,
            dtype=dtype,
            enforce_eager=not torch.cuda.is_available(),
            enable_sleep_mode=torch.cuda.is_available(),
            max_model_len=bounds.max_context,
            max_num_seqs=bounds.rows,
            kv_cache_memory_bytes=bounds.cache_bytes,
            block_size=_BLOCK,
            logprobs_mode="processed_logprobs",
            enable_prefix_caching=True,
            async_scheduling=False,
            disable_log_stats=True,
        )
        with computing_with_weights():
            try:
                engine = LLMEngine.from_engine_args(about)
            except (OSError, ValueError, NotImplementedError) as error:
                raise InvalidArgument(f"vLLM cannot load model {model!r}: {error}") from error

    def params(**wanted: Any) -> Any:
        fixed = {
            "logprobs": 0,
            "detokenize": False,
            "ignore_eos": True,
            "output_kind": RequestOutputKind.DELTA,
        }
        return SamplingParams(**fixed, **wanted)

    return engine, params
