"""A small real world for the runtime's tests: a template, a sampler and a server of environments, all in memory.

The template has two ids for every character, so that re-tokenising sampled text is visible: it always writes the
first, the sampler picks either.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from agent_runtime.policy import Completion, Message, PolicyError, SampleRequest
from agent_runtime.types import AgentConfig, IntArray, RolloutRequest, SamplingParams, Start
from rock_env.env import Info, StepResult, Verdict, observation_hash
from rock_env.errors import DeadlineExceeded, EnvLost, InfraError, ResetDivergence

END = 4
ROLES = {"system": 1, "user": 2, "assistant": 3}
FIRST_CHAR = 8
ALIAS = 1000
"""`char + ALIAS` decodes to the same character; only a sampler ever writes it."""


@dataclass(frozen=True)
class CharTemplate:
    """One token per character, one per role, one for the end of a message."""

    max_context: int = 100_000

    def _text(self, text: str) -> list[int]:
        return [FIRST_CHAR + ord(char) for char in text]

    def open(self, messages: Sequence[Message]) -> IntArray:
        ids: list[int] = []
        for message in messages:
            ids += [ROLES[message.role], *self._text(message.content), END]
        return np.array([*ids, ROLES["assistant"]], np.int32)

    def extend(self, messages: Sequence[Message], *, closed: bool) -> IntArray:
        return np.concatenate([np.array([] if closed else [END], np.int32), self.open(messages)])

    def encode_completion(self, text: str, prompt_ids: IntArray | None = None) -> IntArray:
        return np.array([*self._text(text), END], np.int32)

    def decode(self, ids: IntArray, prompt_ids: IntArray | None = None) -> str:
        return "".join(chr((i - FIRST_CHAR) % ALIAS) for i in ids.tolist() if i >= FIRST_CHAR)


@dataclass
class ScriptedSampler:
    """Samples letters from the request's seed alone and remembers every prompt it was shown."""

    fail_at: int = -1
    delay_s: float = 0.0
    version: int = 5
    prompts: dict[tuple[str, int], list[int]] = field(default_factory=dict)
    completions: dict[tuple[str, int], list[int]] = field(default_factory=dict)
    running: int = 0
    most_running: int = 0

    async def sample(self, request: SampleRequest) -> Completion:
        self.running += 1
        self.most_running = max(self.most_running, self.running)
        try:
            await asyncio.sleep(self.delay_s)
        finally:
            self.running -= 1
        if request.turn == self.fail_at:
            raise PolicyError("the engine is out of memory")
        rng = np.random.default_rng(request.seed)
        length = int(rng.integers(1, request.params.max_tokens + 1))
        ids = FIRST_CHAR + rng.integers(ord("a"), ord("e"), length) + ALIAS * rng.integers(0, 2, length)
        stopped = length < request.params.max_tokens
        if stopped:
            ids = np.append(ids, END)
        key = (request.rollout_id, request.turn)
        self.prompts[key] = request.prompt_ids.tolist()
        self.completions[key] = ids.tolist()
        logprobs = -rng.random(len(ids)).astype(np.float32)
        return Completion(ids.astype(np.int32), logprobs, "stop" if stopped else "length", self.version)


ERRORS = {"infra": InfraError, "lost": EnvLost, "deadline": DeadlineExceeded}


class ChainEnv:
    """Its observation is a digest of seed and actions; "a" is progress, `goal` of them win, "d" is illegal."""

    version = "3"
    sandbox_id = ""
    image = ""

    def __init__(self, rock: MemoryRock, params_json: str) -> None:
        params = json.loads(params_json or "{}")
        self._rock = rock
        self._fail: dict[str, str] = params.get("fail", {})
        self._hang: str = params.get("hang", "")
        self._drift: bool = params.get("drift", False)
        self._goal: int = params.get("goal", 3)
        self._limit: int = params.get("limit", 1000)
        self._infos: list[dict[str, int]] = params.get("infos", [])
        self._state = ""
        self._steps = 0
        self._progress = 0

    async def _maybe_fail(self, where: str) -> None:
        await asyncio.sleep(0)
        if where == self._hang:
            self._rock.hanging.set()
            await asyncio.sleep(3600)
        if where in self._fail:
            if self._fail[where] == "bug":
                raise ZeroDivisionError(where)
            raise ERRORS[self._fail[where]](f"{where} failed")

    def _apply(self, action: str) -> str:
        self._steps += 1
        self._progress += action.startswith("a")
        self._state += f"|{action}"
        drift = f"#{self._rock.made}" if self._drift and self._steps == 2 else ""
        return observation_hash(self._state + drift).hex()

    async def reset(
        self,
        task_id: str,
        seed: int,
        prefix: Sequence[tuple[str, bytes]] = (),
        resume_seed: int | None = None,
        initial_hash: bytes = b"",
    ) -> tuple[str, Info, str]:
        await self._maybe_fail("reset")
        self._state = f"{task_id}:{seed}"
        observation = observation_hash(self._state).hex()
        if initial_hash and observation_hash(observation) != initial_hash:
            raise ResetDivergence("the first observation differs")
        for action, recorded in prefix:
            observation = self._apply(action)
            if observation_hash(observation) != recorded:
                raise ResetDivergence(f"after {action!r} the observation differs")
        if resume_seed is not None:
            self._state += f":{resume_seed}"
        return observation, {}, f"Solve {task_id}."

    async def step(self, action: str) -> StepResult:
        await self._maybe_fail(f"step{self._steps}")
        observation = self._apply(action)
        info = self._infos[self._steps - 1] if self._steps <= len(self._infos) else {}
        return StepResult(
            observation,
            reward=float(action.startswith("a")),
            terminated=self._progress >= self._goal,
            truncated=self._steps >= self._limit,
            info={"illegal": True} if action.startswith("d") else info,
        )

    async def evaluate(self) -> Verdict:
        await self._maybe_fail("evaluate")
        won = self._progress >= self._goal
        return Verdict(float(won), won)

    async def close(self) -> None:
        await self._maybe_fail("close")
        await asyncio.sleep(0.001)
        self._rock.closed += 1


@dataclass
class MemoryRock:
    """Makes `ChainEnv`s and counts how many were made and closed."""

    made: int = 0
    closed: int = 0
    hanging: asyncio.Event = field(default_factory=asyncio.Event)

    async def make(self, env: str, params_json: str) -> ChainEnv:
        made = ChainEnv(self, params_json)
        await made._maybe_fail("make")
        self.made += 1
        return made


def a_request(
    rollout_id: str = "r0",
    *,
    params: dict[str, object] | None = None,
    agent: AgentConfig | None = None,
    start: Start | None = None,
    seed: int = 11,
    max_tokens: int = 4,
    time_limit_s: float = 60.0,
) -> RolloutRequest:
    return RolloutRequest(
        id=rollout_id,
        env="chain",
        params_json=json.dumps(params or {}),
        task_id="train/7",
        group_id="g",
        index=2,
        seed=seed,
        agent=agent or AgentConfig(max_turns=12),
        sampling=SamplingParams(max_tokens=max_tokens),
        start=start or Start(env_seed=3),
        time_limit_s=time_limit_s,
    )
