"""A ROCK server that lies, sends too much, nothing or its caller's token: one named error, and nothing is held up."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest
from console_run import beside_rock, write_run

from ale.console import rock as console_rock
from rock_env.proto.v1 import admin_pb2
from rock_env.proto.v1 import sandbox_pb2 as pb

TOKEN = f"rock_0123456789ab_{'c0ffee' * 8}"
ID = f"sb-{'0' * 16}"
Reply = Callable[[bytes, Any], Awaitable[bytes]]


class Answers(grpc.GenericRpcHandler):  # type: ignore[misc]
    """Answers every call with the bytes that `reply` makes."""

    def __init__(self, reply: Reply) -> None:
        self._reply = reply

    def service(self, details: Any) -> Any:
        if details.method.endswith("/ProcessLogs"):

            async def stream(request: bytes, context: Any) -> AsyncIterator[bytes]:
                while True:
                    yield await self._reply(request, context)

            return grpc.unary_stream_rpc_method_handler(stream)
        return grpc.unary_unary_rpc_method_handler(self._reply)


@asynccontextmanager
async def lying(folder: Path, reply: Reply, **options: Any) -> AsyncIterator[Any]:
    """Serve these answers and yield a client of a console that shows them."""
    server = grpc.aio.server(**options)
    server.add_generic_rpc_handlers([Answers(reply)])
    server.add_insecure_port(f"unix://{folder}/s")
    await server.start()
    write_run(folder / "runs" / "one")
    async with beside_rock(folder / "runs", f"unix://{folder}/s") as page:
        yield page
        assert len((await page.get("/api/runs")).json()["runs"]) == 1
    await server.stop(None)


async def nonsense(_: bytes, __: Any) -> Any:
    return b"\xff" * 1000


async def too_large(_: bytes, __: Any) -> Any:
    return pb.SandboxInfo(id=ID, reason="x" * (5 << 20)).SerializeToString()


async def no_state(_: bytes, __: Any) -> Any:
    info = pb.SandboxInfo(id=ID, state=99)  # type: ignore[arg-type]
    return pb.ListSandboxesResponse(sandboxes=[info]).SerializeToString()


async def bad_hint(_: bytes, context: Any) -> Any:
    context.set_trailing_metadata((("rock-error-code", "infra"), ("rock-retry-after-s", "soon")))
    await context.abort(grpc.StatusCode.INTERNAL, "no")
    return b""


async def hanging(_: bytes, __: Any) -> Any:
    await asyncio.sleep(3600)
    return b""


@pytest.fixture(autouse=True)
def token(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROCK_TOKEN", TOKEN)
    monkeypatch.setattr(console_rock, "ASK_S", 100.0)  # the machine may be busy


@pytest.mark.parametrize(
    ("reply", "says"),
    [
        (nonsense, "sent what is no answer"),
        (too_large, "larger than max"),
        (no_state, "sent what is no answer"),
        (bad_hint, "sent what is no answer"),
    ],
)
async def test_what_is_no_answer_is_one_named_error(tmp_path: Path, reply: Reply, says: str) -> None:
    async with lying(tmp_path, reply) as page:
        answer = await page.get("/api/rock/sandboxes")
        assert answer.status_code == 502
        assert says in answer.json()["detail"]
        assert len(answer.text) < 3000
        for part in (await page.get("/api/rock/places")).json().values():
            assert part["told"] is None or part["told"] in ([], {}) or reply is no_state


async def test_what_is_compressed_is_not_unpacked(tmp_path: Path) -> None:
    async def bomb(_: bytes, __: Any) -> Any:
        return pb.SandboxInfo(id=ID, reason="x" * (50 << 20)).SerializeToString()

    async with lying(tmp_path, bomb, compression=grpc.Compression.Gzip) as page:
        answer = await page.get("/api/rock/sandbox", params={"id": ID})
        assert answer.status_code == 502
        assert len(answer.text) < 3000


async def test_a_server_that_hangs_is_left_and_keeps_nobody_else_waiting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(console_rock, "ASK_S", 1.0)
    async with lying(tmp_path, hanging) as page:
        many = [
            page.get("/api/rock/sandbox", params={"id": ID}) for _ in range(console_rock.MOST_QUESTIONS + 3)
        ]
        answers = await asyncio.gather(*many)
    said = [answer.json()["detail"] for answer in answers]
    assert {answer.status_code for answer in answers} == {502}
    assert sum("did not answer within 1 s" in each for each in said) == console_rock.MOST_QUESTIONS
    assert sum("questions of" in each for each in said) == 3


async def test_lists_and_logs_without_end_are_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(console_rock, "MOST_READ", 1 << 20)
    asked = []

    async def endless(request: bytes, _: Any) -> Any:
        asked.append(request)
        if len(request) > len(ID) + 10:  # a page's token
            return pb.ExecEvent(stdout=pb.OutputChunk(data=b"x" * 100_000)).SerializeToString()
        infos = [pb.SandboxInfo(id=ID, state="SANDBOX_STATE_RUNNING")] * 500
        return pb.ListSandboxesResponse(sandboxes=infos, next_page_token="on").SerializeToString()

    async with lying(tmp_path, endless) as page:
        told = (await page.get("/api/rock/sandboxes")).json()
        assert (len(told["rows"]), told["more"], len(asked)) == (2000, True, 20)
        answer = await page.get("/api/rock/log", params={"id": ID, "process": "p" * 100})
        assert answer.status_code == 502
        assert "sent more than 1048576 bytes" in answer.json()["detail"]


async def test_a_token_that_comes_back_is_cut_out(tmp_path: Path) -> None:
    secret = TOKEN.rpartition("_")[2]

    async def echoes(request: bytes, context: Any) -> Any:
        if not request:
            await context.abort(grpc.StatusCode.INTERNAL, f"authorization: Bearer {TOKEN}")
        info = pb.SandboxInfo(
            id=TOKEN,
            state="SANDBOX_STATE_RUNNING",
            reason="x" * 480 + secret,
            labels={TOKEN: secret},
            image=secret,
            owner=f"<b>{TOKEN}",
        )
        return info.SerializeToString()

    async with lying(tmp_path, echoes) as page:
        whole = (await page.get("/api/rock/sandbox", params={"id": ID})).text
        places = (await page.get("/api/rock/places")).text
    for text in (whole, places):
        assert "***" in text
        assert "c0ffee" not in text


async def test_a_token_in_what_cannot_be_read_is_cut_out(tmp_path: Path) -> None:
    spec = pb.SandboxSpec(env={f"{TOKEN}=": ""})
    pools = admin_pb2.ListPoolsResponse(pools=[admin_pb2.PoolInfo(spec=spec)]).SerializeToString()

    async def answers(_: bytes, __: Any) -> Any:
        return pools

    async with lying(tmp_path, answers) as page:
        told = (await page.get("/api/rock/places")).json()["pools"]
    assert "***" in told["problem"]
    assert "c0ffee" not in told["problem"]
