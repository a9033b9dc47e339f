"""Attacks of a tenant on a ROCK server by large messages, numbers, used keys and long names. Each must be refused."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from attacks import Attack
from hostile_site import Answer, Site

from rock_env.proto.v1 import admin_pb2, env_pb2, registry_pb2
from rock_env.proto.v1 import sandbox_pb2 as pb
from rock_env.proto.v1.env_pb2_grpc import EnvServiceStub

__all__ = ["INSIDER_ATTACKS"]

MIB = 1 << 20
LARGEST = 7 * MIB
DIGITS = "9" * 5000
AT_ONCE = 10


async def _episode(site: Site, env: str = "frozen_lake") -> str:
    stubs, who = EnvServiceStub(site.channel), site.metadata("sandbox")
    made = await stubs.Make(env_pb2.MakeRequest(env=env), metadata=who)
    reset = env_pb2.ResetRequest(env_id=made.env_id, sequence=1, idempotency_key="r", task_id="train/0")
    await stubs.Reset(reset, metadata=who)
    return str(made.env_id)


def _step(env: str, action: str) -> env_pb2.StepRequest:
    return env_pb2.StepRequest(env_id=env, sequence=2, idempotency_key="k", action=action)


async def _worst(site: Site, name: str, message: bytes) -> Answer:
    told = await asyncio.gather(*(site.call(name, message) for _ in range(AT_ONCE)))
    return next((answer for answer in told if not answer.refused or not answer.clear), told[0])


def _at_once(name: str, make: Callable[[str], Any]) -> Attack:
    """Make the same call with the largest message, ten times at once; return the worst answer."""

    async def act(site: Site) -> Answer:
        return await _worst(site, name, make(await _episode(site)).SerializeToString())

    return act


def _streams_at_once(name: str, make: Callable[[str], Any]) -> Attack:
    async def act(site: Site) -> Answer:
        message = make(site.known.own["sandbox"][0]).SerializeToString()

        def sent() -> Iterator[bytes]:
            yield from [message] * 3

        told = await asyncio.gather(*(site.call(name, sent()) for _ in range(AT_ONCE)))
        return next((answer for answer in told if answer.refused), told[0])

    return act


async def _batches(site: Site) -> Answer:
    """Send ten batches of six actions of 1 MiB over REST at once."""
    made = await _episode(site)
    item = {"env_id": made, "sequence": 2, "idempotency_key": "k", "action": "d" * (MIB + 1)}
    body = json.dumps({"items": [item] * 6}).encode()
    told = await asyncio.gather(*(site.http("POST", "/v1/batch/step", body=body) for _ in range(AT_ONCE)))
    return next((answer for answer in told if answer.refused), await _refused_item(site, item))


async def _refused_item(site: Site, item: Mapping[str, Any]) -> Answer:
    return await site.http("POST", "/v1/batch/step", body={"items": [item]})


def _event_id(verb: str, path: str, text: str, body: Any = b"") -> Attack:
    def act(site: Site) -> Any:
        box, process = site.known.own["sandbox"][0], site.known.own["process"][0]
        where = path.replace("{box}", box).replace("{process}", process)
        return site.http(verb, where, body=body, **{"last-event-id": text})

    return act


async def _two_makes(site: Site) -> Answer:
    for env in ("frozen_lake", "sokoban"):
        answer = await site.call("EnvService.Make", env_pb2.MakeRequest(env=env, idempotency_key="two-makes"))
    return answer


async def _two_actions(site: Site) -> Answer:
    made = await _episode(site)
    first = await site.call("EnvService.Step", _step(made, "right"))
    again = await site.call("EnvService.Step", _step(made, "right"))
    assert (again.status, again.said) == (first.status, first.said), "a retry is answered"
    return await site.call("EnvService.Step", _step(made, "down"))


def _list_long(site: Site) -> Any:
    request = pb.ListFilesRequest(sandbox_id=site.known.own["sandbox"][0], path="a" * 4000)
    return site.call("SandboxService.ListFiles", request)


KEYED = {"start": {"argv": ["true"], "idempotency_key": "insider", "no_stdin": True}}
_turn = env_pb2.PrefixTurn
INSIDER_ATTACKS: Mapping[str, Attack] = {
    "actions of 60 MiB": _at_once("EnvService.Step", lambda env: _step(env, "d" * (60 * MIB))),
    "actions of 7 MiB": _at_once("EnvService.Step", lambda env: _step(env, "d" * LARGEST)),
    "batches of long actions": _at_once(
        "EnvService.StepMany",
        lambda env: env_pb2.StepManyRequest(items=[_step(env, "d" * (MIB + 1))] * 7),
    ),
    "prefixes of long actions": _at_once(
        "EnvService.Reset",
        lambda env: env_pb2.ResetRequest(env_id=env, sequence=2, prefix=[_turn(action="d" * (MIB + 1))] * 7),
    ),
    "large fields that nobody knows": _at_once(
        "EnvService.Make", lambda env: env_pb2.MakeRequest(env="frozen_lake", params_json=" " * LARGEST)
    ),
    "batches of long actions over REST": _batches,
    "streams of the largest inputs": _streams_at_once(
        "SandboxService.WriteFile",
        lambda box: pb.WriteFileRequest(sandbox_id=box, path="f", data=bytes(LARGEST)),
    ),
    "streams of the largest contexts": _streams_at_once(
        "RegistryService.Register", lambda box: registry_pb2.RegisterRequest(tar=bytes(LARGEST))
    ),
    "an event of 5,000 digits": _event_id("GET", "/v1/sandbox-events", DIGITS),
    "a log's offset of 5,000 digits": _event_id("GET", "/v1/processes/{process}/logs", f"1:{DIGITS}"),
    "an output's offset of 5,000 digits": _event_id("POST", "/v1/sandboxes/{box}/exec", f"1:{DIGITS}", KEYED),
    "a build's offset of 5,000 digits": _event_id("GET", "/v1/builds/x/events", DIGITS),
    "a page size of 5,000 digits": lambda site: site.http("GET", f"/v1/sandboxes?page_size={DIGITS}"),
    "one key for two environments": _two_makes,
    "one key for two actions": _two_actions,
    "a parameter's name of 5,000 letters": lambda site: site.http("GET", f"/v1/sandboxes?{'a' * 5000}=1"),
    "a path of 4,000 letters": _list_long,
    "a page that no list named": lambda site: site.call(
        "SandboxService.List", pb.ListSandboxesRequest(page_token="\x1b[2J")
    ),
    "an argument twice": lambda site: site.call(
        "EnvService.Make", env_pb2.MakeRequest(env="frozen_lake", params_json='{"size": 4, "size": 5}')
    ),
    "a quota of nobody": lambda site: site.call(
        "AdminService.SetQuota", admin_pb2.SetQuotaRequest(tenant=""), who="admin"
    ),
    "a quota of a long name": lambda site: site.call(
        "AdminService.SetQuota", admin_pb2.SetQuotaRequest(tenant="a" * 4000), who="admin"
    ),
}
