"""A generative reward model in this process: an engine of ours writes the verdict that `judge` would ask an endpoint for.

Its weights are those of the model's folder and never change; it runs in a thread, one batch at a time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from types import TracebackType

from pydantic import Field, PositiveInt

from agent_runtime.policy import SampleRequest
from agent_runtime.types import SamplingParams
from trainer.config import engine_of
from trainer.models.chosen import learner_spec, sampler_spec
from trainer.reward.base import Answer, NoAnswer, RewardContext, RewardSpec, Sample
from trainer.reward.prompt import PROMPT_VERSION, JudgeForm, judged, messages
from trainer.seeds import derive

__all__ = ["WORKER", "GenerativeModel", "GenerativeOptions"]


class GenerativeOptions(JudgeForm):
    """Which model judges."""

    model: str = Field(min_length=1)
    """A folder that a run exported, or a Hugging Face model's folder or id."""
    batch: PositiveInt = 16
    """Most samples judged together."""


class GenerativeModel:
    """A `RewardWorker` around an inference engine, which serves one thread."""

    alone = True

    def __init__(self, options: GenerativeOptions, context: RewardContext) -> None:
        self.batch = options.batch
        self._options, self._seed = options, context.seed
        self._sampling = SamplingParams(temperature=options.temperature, max_tokens=options.max_tokens)

    async def __aenter__(self) -> GenerativeModel:
        await asyncio.to_thread(self._open)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        pass  # the weights go with the process

    def _open(self) -> None:
        name, model = engine_of(self._options.model), self._options.model
        spec, sampler = learner_spec(name), sampler_spec(name)
        self._template = spec.template(model, spec.options())
        self._engine = sampler.inference(model, sampler.options(), self._seed)

    async def reward(self, samples: Sequence[Sample], attempt: int) -> list[Answer | NoAnswer]:
        """Let the model judge the samples that fit its context."""
        judging = asyncio.ensure_future(asyncio.to_thread(self._judge, samples, attempt))
        try:
            return await asyncio.shield(judging)
        except asyncio.CancelledError:  # a thread cannot be stopped, and the next batch must not meet it
            await asyncio.wait([judging])
            raise

    def _judge(self, samples: Sequence[Sample], attempt: int) -> list[Answer | NoAnswer]:
        prompts = [self._template.open(messages(sample, self._options)) for sample in samples]
        limit = self._template.max_context
        found: list[Answer | NoAnswer] = [
            NoAnswer(
                "reward_unanswered",
                f"the question takes {len(prompt)} tokens, the judge {self._options.model!r} at most {limit - 1}. Use a "
                "model with a longer context, or shorter rollouts.",
                again=False,
            )
            for prompt in prompts
        ]
        asked = [number for number, prompt in enumerate(prompts) if len(prompt) < limit]
        requests = [
            SampleRequest(
                rollout_id=samples[number].digest,
                turn=attempt,
                prompt_ids=prompts[number],
                params=self._sampling,
                seed=derive(self._seed, "reward", samples[number].digest, attempt),
            )
            for number in asked
        ]
        for number, request, said in zip(asked, requests, self._engine.sample(requests), strict=True):
            found[number] = judged(
                self._template.decode(said.ids, request.prompt_ids),
                samples[number],
                self._options,
                by=self._options.model,
                again=self._options.temperature > 0,  # without chance it would say the same
                tokens=(len(request.prompt_ids), len(said.ids)),
                cut=said.finish_reason == "length",
            )
        return found


WORKER = RewardSpec(
    name="generative",
    summary="a generative reward model on an engine of ours",
    version=PROMPT_VERSION,
    options=GenerativeOptions,
    build=GenerativeModel,
    runs_model=True,
)
