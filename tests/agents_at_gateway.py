"""What tests of the gateway share: a policy that answers as scripted, requests, and a gateway on a real socket."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import numpy as np
from flat_branches import token_arrays
from wires import Wire

from agent_runtime.chat import ChatMessage, ChatRequest, ToolSpec
from agent_runtime.gateway.http_server import Limits
from agent_runtime.gateway.server import Gateway
from agent_runtime.gateway.session import Budget, Session
from agent_runtime.graph import validate
from agent_runtime.policy import Completion, PolicyError, SampleRequest, first_stop
from agent_runtime.templates.plain import PlainTemplate
from agent_runtime.types import AgentConfig, RolloutRequest, SamplingParams, Start, Trajectory
from rock_env.env import Verdict

TEMPLATE = PlainTemplate(max_context=100_000)
BASH = ToolSpec("bash", "Run a command.", '{"type": "object", "properties": {"command": {"type": "string"}}}')

Step = str | PolicyError | Callable[[SampleRequest], Awaitable[str]]


class Scripted:
    """A `Sampler` that gives the nth answer to the nth request, the last one for ever, and remembers what it saw."""

    def __init__(self, *script: Step, version: int = 3, stops: bool = True) -> None:
        self.stops = stops
        self.script = list(script) or ["done"]
        self.version = version
        self.seen: list[SampleRequest] = []
        self.sampled: list[np.ndarray[Any, Any]] = []
        self.asked = asyncio.Event()

    async def sample(self, request: SampleRequest) -> Completion:
        step = self.script.pop(0) if len(self.script) > 1 else self.script[0]
        self.seen.append(request)
        self.asked.set()
        if isinstance(step, PolicyError):
            raise step
        text = step if isinstance(step, str) else await step(request)
        at, stop = first_stop(text, request.stop)
        ids = TEMPLATE.encode_answer(text[: at + len(stop)])[:-1] if stop else TEMPLATE.encode_answer(text)
        cut = len(ids) > request.params.max_tokens
        ids = ids[: request.params.max_tokens]
        self.sampled.append(ids)
        return Completion(
            ids,
            np.full(len(ids), -0.5, np.float32),
            "length" if cut else "stop",
            self.version,
            "" if cut else stop,
        )


class Gate:
    """An answer that waits to be let out."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.open = asyncio.Event()
        self.cancelled = False

    async def __call__(self, request: SampleRequest) -> str:
        try:
            await self.open.wait()
        except asyncio.CancelledError:
            self.cancelled = True
            raise
        return self.text


def rollout_request(name: str = "r", **changes: Any) -> RolloutRequest:
    values: dict[str, Any] = {
        "id": name,
        "env": "toy",
        "params_json": "{}",
        "task_id": "t",
        "group_id": "g",
        "index": 0,
        "seed": 7,
        "agent": AgentConfig(),
        "sampling": SamplingParams(temperature=0.7, top_p=0.9, max_tokens=200),
        "start": Start(0),
    }
    return RolloutRequest(**(values | changes))


def chat(*said: str, tools: bool = True, **more: Any) -> ChatRequest:
    """Return a request with a history of user and assistant in turn."""
    roles = ("user", "assistant")
    messages = [ChatMessage(roles[number % 2], text) for number, text in enumerate(said)]  # type: ignore[arg-type]
    return ChatRequest(
        (ChatMessage("system", "You are an agent."), *messages), (BASH,) if tools else (), model="m", **more
    )


class World:
    """A gateway with one session, and a client with its key."""

    def __init__(self, gateway: Gateway, session: Session, policy: Scripted, url: str) -> None:
        self.gateway = gateway
        self.session = session
        self.policy = policy
        self.url = url

    async def post(self, wire: Wire, *said: str, stream: bool = False, **more: object) -> httpx.Response:
        async with httpx.AsyncClient(base_url=self.url, timeout=60) as client:
            body = wire.body(*said, stream=stream, **more)
            return await client.post(wire.path, json=body, headers=wire.headers(self.session.key))

    async def record(self) -> Trajectory:
        """Close the session and check what every record must be: exactly what the engine saw."""
        await self.gateway.close(self.session)
        trajectory = self.session.record("toy@1", Verdict(1.0, passed=True))
        validate(trajectory)
        sampled = self.policy.sampled
        assert trajectory.sampled_tokens == sum(map(len, sampled))
        trained: list[int] = []
        for branch in trajectory.branches():
            ids, trains, _ = token_arrays(branch)
            whole = ids.tolist()
            shown = [seen.prompt_ids.tolist() for seen in self.policy.seen]
            ends = len(branch.turns[-1].completion_ids)
            assert whole[: len(whole) - ends] in shown
            trained += ids[trains].tolist()
        assert sorted(trained) == sorted(np.concatenate(sampled).tolist() if sampled else [])
        return trajectory


@asynccontextmanager
async def world(
    *script: Step,
    limits: Limits | None = None,
    budget: Budget | None = None,
    max_tokens: int = 200,
    where: str | Path = "127.0.0.1:0",
) -> AsyncIterator[World]:
    gateway, policy = Gateway(limits=limits), Scripted(*script)
    async with gateway.serving(where) as url:
        session = gateway.open(
            rollout_request(sampling=SamplingParams(max_tokens=max_tokens)),
            sampler=policy,
            template=PlainTemplate(100_000 + max_tokens),
            budget=budget or Budget(),
        )
        yield World(gateway, session, policy, url)
