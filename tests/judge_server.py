"""An OpenAI-compatible endpoint on a real socket, for tests: it answers as scripted and remembers what it was asked."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from threading import Thread
from typing import Any

import uvicorn

Send = Callable[[dict[str, Any]], Awaitable[None]]
Reply = Callable[["JudgeServer", dict[str, Any], Send], Awaitable[None]]


class JudgeServer:
    """Replies to question n with `script[n]`, and to all later ones with `then`."""

    def __init__(self) -> None:
        self.script: list[Reply] = []
        self.then: Reply = says('{"reason": "fine", "score": 0.75}')
        self.bodies: list[dict[str, Any]] = []
        self.keys: list[str | None] = []
        self.open = self.most_open = 0
        self.url = ""

    async def __call__(
        self, scope: dict[str, Any], receive: Callable[[], Awaitable[Any]], send: Send
    ) -> None:
        assert scope["path"] == "/v1/chat/completions"
        body = b""
        while True:
            part = await receive()
            body += part.get("body", b"")
            if not part.get("more_body"):
                break
        headers = dict(scope["headers"])
        self.bodies.append(json.loads(body))
        self.keys.append(headers.get(b"authorization", b"").decode() or None)
        reply = self.script.pop(0) if self.script else self.then
        self.open += 1
        self.most_open = max(self.most_open, self.open)
        try:
            await reply(self, self.bodies[-1], send)
        finally:
            self.open -= 1


async def respond(send: Send, status: int, body: bytes, **headers: str) -> None:
    named = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
    await send({"type": "http.response.start", "status": status, "headers": named})
    await send({"type": "http.response.body", "body": body})


def says(content: str | None, *, finish_reason: str = "stop") -> Reply:
    """Reply with a completion of this content."""

    async def reply(server: JudgeServer, body: dict[str, Any], send: Send) -> None:
        completion = {
            "id": "c",
            "object": "chat.completion",
            "model": "judge-7",
            "choices": [
                {
                    "index": 0,
                    "message": {"role": "assistant", "content": content},
                    "finish_reason": finish_reason,
                }
            ],
            "usage": {"prompt_tokens": 100, "completion_tokens": 7, "total_tokens": 107},
        }
        await respond(send, 200, json.dumps(completion).encode())

    return reply


def scores_turns(score: Callable[[str], float]) -> Reply:
    """Reply with a verdict on each action of the rollout that the question shows."""

    async def reply(server: JudgeServer, body: dict[str, Any], send: Send) -> None:
        shown = json.loads(body["messages"][1]["content"])
        turns = [score(turn["action"]) for turn in shown["turns"]]
        await says(json.dumps({"reason": "", "turns": turns}))(server, body, send)

    return reply


def status(code: int, body: bytes = b"sorry", **headers: str) -> Reply:
    """Reply with this status and no completion."""

    async def reply(server: JudgeServer, asked: dict[str, Any], send: Send) -> None:
        await respond(send, code, body, **headers)

    return reply


async def hangs(server: JudgeServer, body: dict[str, Any], send: Send) -> None:
    """Never reply."""
    await asyncio.Event().wait()


async def breaks_off(server: JudgeServer, body: dict[str, Any], send: Send) -> None:
    """Promise more than is sent, and end the connection."""
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"1000")]})
    await send({"type": "http.response.body", "body": b'{"choices"'})


def gathers(count: int) -> Reply:
    """Reply when so many questions are open at once; then let all later ones through."""
    arrived: list[int] = []
    everyone = asyncio.Event()

    async def reply(server: JudgeServer, body: dict[str, Any], send: Send) -> None:
        arrived.append(1)
        if len(arrived) == count:
            everyone.set()
        await everyone.wait()
        await says('{"reason": "", "score": 1}')(server, body, send)

    return reply


@contextmanager
def judge_server() -> Iterator[JudgeServer]:
    """Serve on a free port of the loopback interface."""
    judge = JudgeServer()
    config = uvicorn.Config(judge, log_level="critical", lifespan="off", timeout_graceful_shutdown=0)
    server = uvicorn.Server(config)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        judge.url = f"http://127.0.0.1:{listening.getsockname()[1]}/v1"
        thread = Thread(target=server.run, kwargs={"sockets": [listening]})
        thread.start()
        try:
            yield judge
        finally:
            server.should_exit = True
            thread.join()
