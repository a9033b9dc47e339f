"""A gateway in a process of its own, for attacks on it: two sessions before a policy that answers at once.

It prints one line of JSON, `url` and `keys`, and serves until it is ended.
"""

from __future__ import annotations

import asyncio
import json
import sys

import numpy as np

from agent_runtime.gateway.server import Gateway
from agent_runtime.gateway.session import Budget
from agent_runtime.policy import Completion, SampleRequest
from agent_runtime.templates.plain import PlainTemplate
from agent_runtime.types import AgentConfig, RolloutRequest, SamplingParams, Start

TEMPLATE = PlainTemplate(max_context=1 << 20)


class Instant:
    """A policy that has always the same answer, and cannot stop at a text."""

    stops = False

    def __init__(self) -> None:
        ids = TEMPLATE.encode_answer("I look at the file first.")
        self._completion = Completion(ids, np.zeros(len(ids), np.float32), "stop", 0)

    async def sample(self, request: SampleRequest) -> Completion:
        return self._completion


def rollout(number: int) -> RolloutRequest:
    return RolloutRequest(
        id=f"r{number}",
        env="hostile",
        params_json="{}",
        task_id="t",
        group_id="g",
        index=number,
        seed=number,
        agent=AgentConfig(),
        sampling=SamplingParams(max_tokens=64),
        start=Start(0),
    )


async def serve() -> None:
    gateway = Gateway()
    budget = Budget(turns=1 << 20, tokens=1 << 40)
    async with gateway.serving() as url:
        keys = [
            gateway.open(rollout(number), sampler=Instant(), template=TEMPLATE, budget=budget).key
            for number in range(2)
        ]
        sys.stdout.write(json.dumps({"url": url, "keys": keys}) + "\n")
        sys.stdout.flush()
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(serve())
