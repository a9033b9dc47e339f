"""How long the texts of requests may be: bounded by field, with one short line for what is not."""

from __future__ import annotations

from typing import Any

import pytest

from rock_env.errors import InvalidArgument
from rock_env.proto.v1 import env_pb2, registry_pb2
from rock_env.proto.v1 import sandbox_pb2 as pb
from rock_env.server.interceptors.sizes import check_sizes
from rock_env.wire.rest_routes import methods

LARGE = {
    "a label": pb.CreateSandboxRequest(labels={"a": "x" * 5000}),
    "a label's name": pb.CreateSandboxRequest(labels={"x" * 5000: ""}),
    "65 labels": pb.CreateSandboxRequest(labels={str(number): "" for number in range(65)}),
    "a label in a batch": pb.CreateManyRequest(items=[pb.CreateSandboxRequest(labels={"a": "x" * 5000})]),
    "a key": pb.ForkSandboxRequest(idempotency_key="k" * 1025),
    "a folder": pb.CreateSandboxRequest(spec=pb.SandboxSpec(workdir="/" * 5000)),
    "variables in all": pb.CreateSandboxRequest(
        spec=pb.SandboxSpec(env={str(number): "x" * 60_000 for number in range(5)})
    ),
    "a word": pb.ExecRequest(start=pb.ExecStart(argv=["x" * 200_000])),
    "words": pb.ExecRequest(start=pb.ExecStart(argv=["x"] * 40_000)),
    "modules": pb.CreateSandboxRequest(spec=pb.SandboxSpec(preload=["os"] * 2000)),
    "hosts": pb.CreateSandboxRequest(spec=pb.SandboxSpec(network=pb.NetworkPolicy(allow=["a"] * 2000))),
    "a path": pb.ReadFileRequest(path="x" * 5000),
    "an image": registry_pb2.GetImageRequest(name="x" * 5000),
    "an action": env_pb2.StepRequest(action="x" * ((1 << 20) + 1)),
    "an action in a batch": env_pb2.StepManyRequest(items=[env_pb2.StepRequest(action="x" * (2 << 20))]),
    "an action of a prefix": env_pb2.ResetRequest(prefix=[env_pb2.PrefixTurn(action="x" * (2 << 20))]),
    "arguments": env_pb2.MakeRequest(params_json="x" * (2 << 20)),
    "build arguments": registry_pb2.RegisterRequest(
        start=registry_pb2.RegisterStart(build_args={"a": "x" * 5000})
    ),
}


@pytest.mark.parametrize("name", LARGE)
def test_what_is_too_large_is_named_in_one_short_line(name: str) -> None:
    with pytest.raises(InvalidArgument, match=r"is too large: got \d+ .*, expected at most \d+\.$") as raised:
        check_sizes(LARGE[name])
    assert len(str(raised.value)) < 150


@pytest.mark.parametrize(
    "message",
    [
        pb.CreateSandboxRequest(labels={"team": "a" * 4096}, idempotency_key="k" * 1024),
        pb.ExecRequest(start=pb.ExecStart(argv=["sh", "-c", "x" * 100_000], env={"A": "x" * 100_000})),
        pb.SessionInput(command="x" * 1_000_000),
        pb.WriteFileRequest(path="f", data=bytes(5 << 20)),
        env_pb2.StepRequest(action="x" * (1 << 20)),
        env_pb2.StepManyRequest(items=[env_pb2.StepRequest(action="x" * (1 << 20))] * 5),
        env_pb2.ResetRequest(prefix=[env_pb2.PrefixTurn(action="x" * 300)] * 40_000),
    ],
    ids=lambda message: message.DESCRIPTOR.name,
)
def test_what_agents_send_passes(message: Any) -> None:
    check_sizes(message)


def test_every_request_can_be_checked() -> None:
    for method in methods():
        check_sizes(method.request())
