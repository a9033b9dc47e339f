"""A server of toy environments, and its client over gRPC and REST; a module may have its own."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import transports

from rock_env.client import Client
from rock_env.local import EmbeddedServer
from rock_env.proto.v1 import env_pb2_grpc

TOYS = [f"--env={Path(__file__).with_name('toy_envs.py')}:{name}" for name in ("TOY", "PLAIN", "BOX")]

if transports.running() is not None:
    transports.balance_calls()


@pytest.fixture(scope="module")
def server() -> Iterator[EmbeddedServer | transports.Addresses]:
    with transports.served([*TOYS, "--workers=2", "--hang-grace-s=0.3", *transports.REST_OPTIONS]) as running:
        yield running


@pytest.fixture(params=transports.EACH)
def address(server: transports.Addresses, request: pytest.FixtureRequest) -> str:
    """Return where the server is to be reached: every test that takes it holds over gRPC and REST."""
    return server.http if request.param == "rest" else server.address


@pytest.fixture
async def client(address: str) -> AsyncIterator[Client]:
    async with Client(address, retry_for_s=5.0) as connected:
        yield connected


@pytest.fixture
async def stub(address: str) -> AsyncIterator[env_pb2_grpc.EnvServiceStub]:
    async with transports.channel(address) as channel:
        yield env_pb2_grpc.EnvServiceStub(channel)
