"""What the gateway itself costs: agents with growing histories before an engine that answers at once.

`python -m benchmarks.gateway [--quick] [--write]`. The gateway runs in one process, the agents in another, over loopback
TCP. 16 agents (OpenAI chat, one connection each) ask 20 times, each time with everything said before and 2,000 characters
more; then 16 others, until the time is up. Sessions stay open: what they hold counts. Tokens are bytes, the cheapest
template there is. The last line is one JSON object:

- `requests_per_s`: answers over the whole time (goal: at least 600 on two cores);
- `p99_ms`: 99th percentile of a request's time;
- `mb_per_1000_requests`: growth of the gateway's memory, histories included;
- `kb_per_new_kb`: that growth over the text that was new (linear in new tokens: it stays the same for longer histories);
- `mb_per_1000_idle`: memory of 1,000 sessions that asked once, are silent, and keep their connection (goal: under 200).
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import sys
from statistics import quantiles
from time import perf_counter
from typing import Any

import numpy as np
import psutil

from agent_runtime.gateway.server import Gateway
from agent_runtime.gateway.session import Budget
from agent_runtime.policy import Completion, SampleRequest
from agent_runtime.templates.plain import PlainTemplate
from agent_runtime.types import AgentConfig, RolloutRequest, SamplingParams, Start
from benchmarks.scaffold import Child, figures_page, finish, parser_of, write_results

AGENTS = 16
TURNS = 20
GROWTH = 2000
"""Characters that each turn adds to a history."""
IDLE = 1000
MB = 1e6
GOALS = {
    "requests_per_s": "at least 600",
    "mb_per_1000_requests": "linear in new tokens",
    "mb_per_1000_idle": "under 200",
}
NOTE = """\
The template's tokens are bytes, kept as 4 bytes each beside the text itself: 5 of the 6.5 kB for each new one. A profile
taken at `ca9bbe0` shows no part that stands out: reading JSON 11 %, finding what the history continues 14 %, tokens 10 %,
HTTP about 30 %, waiting 17 %."""
ANSWER = "I look at the file first."


def rollout_request(number: int) -> RolloutRequest:
    return RolloutRequest(
        id=f"r{number}",
        env="bench",
        params_json="{}",
        task_id="t",
        group_id="g",
        index=number,
        seed=number,
        agent=AgentConfig(),
        sampling=SamplingParams(max_tokens=64),
        start=Start(0),
    )


class Instant:
    """A policy that has always the same answer."""

    stops = False

    def __init__(self, template: PlainTemplate) -> None:
        ids = template.encode_answer(ANSWER)
        self._completion = Completion(ids, np.zeros(len(ids), np.float32), "stop", 0)

    async def sample(self, request: SampleRequest) -> Completion:
        return self._completion


async def serve() -> None:
    """Be the gateway's process: a line in is a command, a line out its answer."""
    gateway = Gateway()
    template = PlainTemplate(max_context=1 << 24)
    engine = Instant(template)
    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), sys.stdin
    )
    made = 0
    async with gateway.serving() as url:
        print(json.dumps(url), flush=True)
        while line := await reader.readline():
            command, *rest = line.split()
            answer: Any
            if command == b"open":
                answer = []
                for _ in range(int(rest[0])):
                    made += 1
                    session = gateway.open(
                        rollout_request(made),
                        sampler=engine,
                        template=template,
                        budget=Budget(tokens=1 << 30),
                    )
                    answer.append(session.key)
            else:
                gc.collect()
                answer = psutil.Process().memory_info().rss
            print(json.dumps(answer), flush=True)


class Agent:
    """One agent and its connection. Bytes are made as cheaply as may be: it must not be what is measured."""

    def __init__(self, host: str, key: str) -> None:
        self._host = host
        self._head = f"POST /v1/chat/completions HTTP/1.1\r\nhost: {host}\r\nauthorization: Bearer {key}\r\n"
        self._messages = [_message("system", "You are a coding agent.")]

    async def __aenter__(self) -> Agent:
        host, _, port = self._host.rpartition(":")
        self._reader, self._writer = await asyncio.open_connection(host, int(port))
        return self

    async def __aexit__(self, *_: object) -> None:
        self._writer.close()
        await self._writer.wait_closed()

    async def turn(self, number: int, characters: int = GROWTH) -> float:
        """Ask with everything said before and something more; return the seconds it took."""
        text = f"turn {number}: " + "the quick brown fox jumps over the lazy dog; " * (characters // 45 + 1)
        self._messages.append(_message("user", text[:characters]))
        body = f'{{"model": "m", "messages": [{", ".join(self._messages)}]}}'.encode()
        head = f"{self._head}content-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
        start = perf_counter()
        self._writer.write(head.encode() + body)
        status = await self._reader.readuntil(b"\r\n\r\n")
        length = int(status.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
        reply = await self._reader.readexactly(length)
        seconds = perf_counter() - start
        assert status.startswith(b"HTTP/1.1 200"), (status, reply)
        self._messages.append(_message("assistant", json.loads(reply)["choices"][0]["message"]["content"]))
        return seconds


def _message(role: str, content: str) -> str:
    return json.dumps({"role": role, "content": content})


async def play(host: str, keys: list[str]) -> list[float]:
    """Let one agent a key play all its turns, side by side; return the seconds of each request."""

    async def one(key: str) -> list[float]:
        async with Agent(host, key) as agent:
            return [await agent.turn(number) for number in range(TURNS)]

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(one(key)) for key in keys]
    return [seconds for task in tasks for seconds in task.result()]


async def measure(for_s: float) -> dict[str, float]:
    """Return the figures."""
    with Child("-m", "benchmarks.gateway", "--serve") as gateway:
        host = gateway.first.removeprefix("http://")
        await play(host, gateway.ask(f"open {AGENTS}"))  # warms up
        before, seconds = gateway.ask("rss"), []
        begun = perf_counter()
        while perf_counter() - begun < for_s:
            seconds += await play(host, gateway.ask(f"open {AGENTS}"))
        took, grown = perf_counter() - begun, gateway.ask("rss") - before
    with Child("-m", "benchmarks.gateway", "--serve") as gateway:
        host = gateway.first.removeprefix("http://")
        await play(host, gateway.ask(f"open {AGENTS}"))
        before = gateway.ask("rss")
        agents = [Agent(host, key) for key in gateway.ask(f"open {IDLE}")]
        for agent in agents:
            await agent.__aenter__()
            await agent.turn(0, 100)
        idle = gateway.ask("rss") - before
        for agent in agents:
            await agent.__aexit__()
    return {
        "requests_per_s": round(len(seconds) / took),
        "p99_ms": round(quantiles(seconds, n=100)[-1] * 1e3, 1),
        "mb_per_1000_requests": round(grown / MB / len(seconds) * 1000, 2),
        "kb_per_new_kb": round(grown / (len(seconds) * GROWTH), 2),
        "mb_per_1000_idle": round(idle / MB / IDLE * 1000, 1),
    }


def main() -> None:
    parser = parser_of(__doc__, quick="5 s of load instead of 30 s", write="gateway.md")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        asyncio.run(serve())
        return
    figures = asyncio.run(measure(5.0 if options.quick else 30.0))
    if options.write:
        write_results(
            "gateway.md",
            "What the gateway costs",
            "python -m benchmarks.gateway --write",
            f"{AGENTS} agents, {TURNS} turns each, {GROWTH} characters more a turn, an engine that answers at once; "
            f"gateway and agents in two processes.\n\n{figures_page(figures, GOALS)}\n\n{NOTE}",
        )
    finish(figures)


if __name__ == "__main__":
    main()
