"""What a caller reaches by an environment's arguments on a server with tokens: no file of the host, nobody else's time."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import psutil
import pytest
from rest_servers import RestServer, guarded_rest
from secure_servers import token

from rock_env.proto.v1 import env_pb2 as pb
from rock_env.proto.v1.env_pb2_grpc import EnvServiceStub
from rock_env.wire.channel import CLIENT_OPTIONS, target

HUNGRY = Path(__file__).with_name("hungry_env.py")
LEVEL = "; 0\n#####\n#@$.#\n#####\n"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RestServer]:
    folder = tmp_path_factory.mktemp("parameters")
    (folder / "levels.txt").write_text(LEVEL)
    more = [f"--data=levels={folder}/levels.txt", f"--env={HUNGRY}:HUNGRY", "--worker-memory-gib=0.5"]
    with guarded_rest(folder, [*more, "--step-timeout-s=2"]) as running:
        yield running


@asynccontextmanager
async def calling(server: RestServer, key: str = "") -> AsyncIterator[Any]:
    """Yield the EnvService as a tenant calls it."""
    key = key or server.key
    async with grpc.aio.insecure_channel(target(server.grpc), options=CLIENT_OPTIONS) as channel:
        stub = EnvServiceStub(channel)

        async def call(name: str, request: Any) -> Any:
            return await getattr(stub, name)(request, metadata=(("authorization", f"Bearer {key}"),))

        yield call


def splits(env: str, **params: Any) -> pb.ListSplitsRequest:
    return pb.ListSplitsRequest(env=env, params_json=json.dumps(params))


async def refused(answer: Any) -> tuple[str, str]:
    """Return the status and the message of a call that must fail."""
    with pytest.raises(grpc.aio.AioRpcError) as failure:
        await answer
    return failure.value.code().name, failure.value.details() or ""


PLACES = ["/etc/passwd", "/proc/self/environ", "/dev/zero", "tokens.json", "../levels.txt", "levels/."]


@pytest.mark.parametrize("place", PLACES)
async def test_no_argument_names_a_file_of_the_host(server: RestServer, place: str) -> None:
    async with calling(server) as call:
        for env, params in (
            ("sokoban", {"boxoban_file": place}),
            ("swe", {"source": "quixbugs", "path": place}),
            ("webshop", dict.fromkeys(("products_file", "attributes_file", "instructions_file"), place)),
        ):
            make = pb.MakeRequest(env=env, params_json=json.dumps(params))
            for answer in (call("ListSplits", splits(env, **params)), call("Make", make)):
                status, said = await refused(answer)
                assert status == "INVALID_ARGUMENT"
                assert "takes no path on this server" in said
                assert "root:" not in said


async def test_data_that_the_operator_named_is_read(server: RestServer) -> None:
    async with calling(server) as call:
        found = await call("ListSplits", splits("sokoban", boxoban_file="levels"))
        assert [split.count for split in found.splits] == [1, 1, 1]
        params = json.dumps({"boxoban_file": "levels"})
        made = await call("Make", pb.MakeRequest(env="sokoban", params_json=params))
        reset = pb.ResetRequest(env_id=made.env_id, sequence=1, idempotency_key="r", task_id="train/0")
        assert (await call("Reset", reset)).observation.startswith("#####")


async def test_what_a_plugin_does_with_arguments_costs_its_caller_alone(server: RestServer) -> None:
    red = token(server.tokens, "red", "env")
    before = psutil.Process(server.pid).memory_info().rss
    async with calling(server) as call, calling(server, red) as neighbour:
        made = await neighbour("Make", pb.MakeRequest(env="toy", params_json="{}"))
        status, said = await refused(call("ListSplits", splits("hungry", eats=1 << 34)))
        assert (status, "more memory than a worker" in said) == ("RESOURCE_EXHAUSTED", True), said
        status, said = await refused(call("ListSplits", splits("hungry", sleeps=True)))
        assert (status, "ran longer than" in said) == ("DEADLINE_EXCEEDED", True), said
        reset = pb.ResetRequest(env_id=made.env_id, sequence=1, idempotency_key="r", task_id="train/0")
        assert (await neighbour("Reset", reset)).observation
        assert [split.count for split in (await call("ListSplits", splits("hungry"))).splits] == [1]
    assert psutil.Process(server.pid).memory_info().rss - before < 64 << 20


async def test_tenants_share_no_worker(server: RestServer) -> None:
    red = token(server.tokens, "red2", "env")
    pids = set()
    for key in ("", red):
        async with calling(server, key) as call:
            made = await call("Make", pb.MakeRequest(env="toy", params_json="{}"))
            reset = pb.ResetRequest(env_id=made.env_id, sequence=1, idempotency_key="r", task_id="train/0")
            await call("Reset", reset)
            step = pb.StepRequest(env_id=made.env_id, sequence=2, idempotency_key="s", action="pid")
            pids.add((await call("Step", step)).observation)
    assert len(pids) == 2


@pytest.mark.parametrize(
    "params_json",
    ['{"a":' * 10_000, '{"size": ' + "9" * 60_000 + "}", '{"size": "' + "x" * (7 << 20) + '"}', "\0"],
)
async def test_odd_arguments_are_refused_shortly(server: RestServer, params_json: str) -> None:
    async with calling(server) as call:
        for answer in (
            call("ListSplits", pb.ListSplitsRequest(env="frozen_lake", params_json=params_json)),
            call("Make", pb.MakeRequest(env="frozen_lake", params_json=params_json)),
        ):
            status, said = await refused(answer)
            assert status == "INVALID_ARGUMENT"
            assert len(said) < 600
