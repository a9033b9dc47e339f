"""Attacks on a server and a gateway that may use little memory: each is refused in one clear line, and nobody restarts."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from attack_rounds import ON_COMMANDS, ON_SERVERS
from attacks import ATTACKS, Attack
from attacks_gateway import GATEWAY_ATTACKS
from attacks_insider import INSIDER_ATTACKS
from hostile_site import Site, hostile_site, why_not_limited

from rock_env.proto.v1 import env_pb2
from rock_env.proto.v1 import sandbox_pb2 as pb

ALL = {**ATTACKS, **INSIDER_ATTACKS, **GATEWAY_ATTACKS}
pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def site(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Site]:
    if why_not_limited():
        pytest.skip(f"attacks need a server with a memory limit: {why_not_limited()}")
    async with hostile_site(tmp_path_factory.mktemp("hostile")) as running:
        yield running


async def works(site: Site) -> None:
    """The victim of all this is served as ever, by the same processes."""
    assert site.alive
    read = pb.ReadFileRequest(sandbox_id=site.known.others["sandbox"][0], path="f")
    assert "others" in (await site.call("SandboxService.ReadFile", read, who="victim")).said
    point = env_pb2.CheckpointRequest(env_id=site.known.others["env"][0])
    assert (await site.call("EnvService.Checkpoint", point, who="victim")).status == "OK"


async def is_refused(attack: Attack, site: Site) -> None:
    """An attack gets an error that is its caller's fault, in one clear line."""
    answer = await attack(site)
    assert answer.refused, answer
    assert answer.clear, answer


@pytest.mark.parametrize("name", ALL)
async def test_an_attack_is_refused(site: Site, name: str) -> None:
    await is_refused(ALL[name], site)
    await works(site)


@pytest.mark.turn(1)
@pytest.mark.parametrize("name", ON_SERVERS)
async def test_an_attack_from_the_docs_is_refused(site: Site, name: str) -> None:
    await is_refused(ON_SERVERS[name], site)
    await works(site)


@pytest.mark.turn(1)
@pytest.mark.parametrize("name", ON_COMMANDS)
async def test_a_command_refuses_in_one_line_what_it_is_given(site: Site, name: str) -> None:
    await is_refused(ON_COMMANDS[name], site)
