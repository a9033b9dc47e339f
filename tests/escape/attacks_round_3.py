"""Attacks of an insider tenant and of a hostile policy, by name. Each must be refused in one clear line."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import Any

from attacks import Attack
from google.protobuf.duration_pb2 import Duration
from hostile_site import Answer, Site

from rock_env.proto.v1 import admin_pb2, env_pb2
from rock_env.proto.v1 import sandbox_pb2 as pb
from rock_env.proto.v1.env_pb2_grpc import EnvServiceStub

__all__ = ["ROUND_3"]

DIGITS = "9" * 5000


def _rpc(name: str, message: Any, who: str = "sandbox") -> Attack:
    return lambda site: site.call(name, message, who=who)


def _create(**fields: Any) -> Attack:
    return _rpc("SandboxService.Create", pb.CreateSandboxRequest(**fields))


def _box_of(site: Site) -> str:
    return site.known.own["sandbox"][0]


def _rest(verb: str, path: str, body: Any = b"", **headers: str) -> Attack:
    return lambda site: site.http(verb, path.replace("{box}", _box_of(site)), body=body, **headers)


def _splits(env: str, **params: Any) -> Attack:
    request = env_pb2.ListSplitsRequest(env=env, params_json=json.dumps(params))
    return _rpc("EnvService.ListSplits", request)


def _in_box(name: str, make: Any, *, stream: bool = False) -> Attack:
    def act(site: Site) -> Any:
        message = make(_box_of(site))
        return site.call(name, iter([message]) if stream else message)

    return act


async def _episode(site: Site, env: str, task: str = "train/0", **params: Any) -> str:
    stubs, who = EnvServiceStub(site.channel), site.metadata("sandbox")
    made = await stubs.Make(env_pb2.MakeRequest(env=env, params_json=json.dumps(params)), metadata=who)
    reset = env_pb2.ResetRequest(env_id=made.env_id, sequence=1, idempotency_key="r", task_id=task)
    await stubs.Reset(reset, metadata=who)
    return str(made.env_id)


def _step(env: str, sequence: int, action: str, key: str = "") -> Any:
    return env_pb2.StepRequest(env_id=env, sequence=sequence, idempotency_key=key, action=action)


def _after_the_end(env: str, action: str, **params: Any) -> Attack:
    """End an episode by a wrong answer, and answer again."""

    async def act(site: Site) -> Answer:
        made = await _episode(site, env, **params)
        await site.call("EnvService.Step", _step(made, 2, action, "a"))
        return await site.call("EnvService.Step", _step(made, 3, action, "b"))

    return act


def _reset(env: str, task: str, **params: Any) -> Attack:
    async def act(site: Site) -> Answer:
        stubs, who = EnvServiceStub(site.channel), site.metadata("sandbox")
        made = await stubs.Make(env_pb2.MakeRequest(env=env, params_json=json.dumps(params)), metadata=who)
        request = env_pb2.ResetRequest(env_id=made.env_id, sequence=1, idempotency_key="r", task_id=task)
        return await site.call("EnvService.Reset", request)

    return act


def _unpaid(env: str, action: str, **params: Any) -> Attack:
    """Do something hostile and ask for the grade."""

    async def act(site: Site) -> Answer:
        made = await _episode(site, env, **params)
        await site.call("EnvService.Step", _step(made, 2, action, "a"))
        ask = env_pb2.EvaluateRequest(env_id=made, sequence=3, idempotency_key="e")
        stubs = EnvServiceStub(site.channel)
        told = await stubs.Evaluate(ask, metadata=site.metadata("sandbox"))
        await site.call("EnvService.Close", env_pb2.CloseRequest(env_id=made))
        paid = told.passed or told.reward > 0
        return Answer("OK" if paid else "PERMISSION_DENIED", f"reward {told.reward:g}")

    return act


async def _two_makes_one_key(site: Site) -> Answer:
    make = env_pb2.MakeRequest(env="frozen_lake", params_json="{}", idempotency_key="two-makes")
    await site.call("EnvService.Make", make)
    other = env_pb2.MakeRequest(env="sokoban", params_json="{}", idempotency_key="two-makes")
    return await site.call("EnvService.Make", other)


async def _two_actions_one_key(site: Site) -> Answer:
    made = await _episode(site, "frozen_lake")
    await site.call("EnvService.Step", _step(made, 2, "right", "a"))
    return await site.call("EnvService.Step", _step(made, 2, "down", "a"))


async def _two_forks(site: Site) -> Answer:
    made = await _episode(site, "frozen_lake")
    request = env_pb2.ForkRequest(env_id=made, count=2, idempotency_key="f", resume_seeds=[1])
    return await site.call("EnvService.Fork", request)


async def _foreign_checkpoint(site: Site) -> Answer:
    """Restore a checkpoint of a toy into a lake."""
    made = await _episode(site, "frozen_lake")
    point = site.known.own["checkpoint"][0]
    request = env_pb2.RestoreRequest(env_id=made, sequence=2, idempotency_key="x", checkpoint_id=point)
    return await site.call("EnvService.Restore", request)


async def _large_actions(site: Site) -> Answer:
    """Send three actions of 60 MiB at once; return the worst answer."""
    message = _step(await _episode(site, "frozen_lake"), 2, "d" * (60 << 20), "k").SerializeToString()
    told = await asyncio.gather(*(site.call("EnvService.Step", message) for _ in range(3)))
    return next((answer for answer in told if not answer.refused), told[0])


async def _last_log(site: Site) -> Answer:
    path = f"/v1/processes/{site.known.own['process'][0]}/logs"
    return await site.http("GET", path, **{"last-event-id": f"1:{DIGITS}"})


def _event_id(verb: str, path: str, text: str, body: Any = b"") -> Attack:
    return _rest(verb, path, body, **{"last-event-id": text})


KEYED = {"start": {"argv": ["true"], "idempotency_key": "last", "no_stdin": True}}
_fork = pb.ForkSandboxRequest
_renew = pb.RenewSandboxRequest
_size = pb.TerminalSize

ROUND_3: Mapping[str, Attack] = {
    "a disk of half of all bytes": _create(spec=pb.SandboxSpec(resources=pb.Resources(disk_bytes=1 << 63))),
    "four billion processes of a box": _create(spec=pb.SandboxSpec(resources=pb.Resources(pids=2**32 - 1))),
    "a working folder over /proc": _create(spec=pb.SandboxSpec(workdir="/proc")),
    "a module by a path": _create(spec=pb.SandboxSpec(preload=["../../x"])),
    "a lifetime of a nanosecond": _create(spec=pb.SandboxSpec(lifetime=Duration(nanos=1))),
    "a variable with a zero byte in its name": _create(spec=pb.SandboxSpec(env={"a\0": "b"})),
    "a lease with a negative rest": _in_box(
        "SandboxService.Renew", lambda box: _renew(id=box, lease=Duration(seconds=600, nanos=-5))
    ),
    "an event's id of 5,000 digits": _event_id("GET", "/v1/sandbox-events", DIGITS),
    "a command's offset of 5,000 digits": _event_id("POST", "/v1/sandboxes/{box}/exec", f"1:{DIGITS}", KEYED),
    "a build's offset of 5,000 digits": _event_id("GET", "/v1/builds/x/events", DIGITS),
    "a log's offset of 5,000 digits": _last_log,
    "a parameter's name of 5,000 letters": _rest("GET", f"/v1/sandboxes?{'a' * 5000}=1"),
    "a deadline that is no number": _rest("GET", "/v1/sandboxes", **{"rock-timeout-s": "NaN"}),
    "a body in UTF-16": _rest("POST", "/v1/sandboxes", '{"lease": "9s"}'.encode("utf-16")),
    "a key of JSON twice": _rest("POST", "/v1/batch/step", b'{"items": [], "items": [{}]}'),
    "one key for two environments": _two_makes_one_key,
    "one key for two actions": _two_actions_one_key,
    "fewer seeds than forks": _two_forks,
    "a checkpoint of another kind": _foreign_checkpoint,
    "three actions of 60 MiB": _large_actions,
    "an answer after the end in math": _after_the_end("math", "\\boxed{999999}"),
    "a way after the dead end": _after_the_end("fork_chain", "mo le gi si ka ti", length=1, width=2),
    "a lake without ice": _reset("frozen_lake", "train/0", size=32, frozen_probability=1e-300),
    "a room full of boxes": _reset("sokoban", "train/0", level="custom", rows=6, cols=6, boxes=6),
    "a task of 1,000 digits": _reset("math", "held_out/" + "9" * 1000),
    "a task in wide digits": _reset("math", "train/\uff11"),
    "a split that clears the screen": _reset("math", "\x1b[2J/0"),
    "turns without number": _splits("terminal", max_turns=10**18),
    "an endless command's limit": _splits("terminal", command_timeout_s=float("inf")),
    "a billion products": _splits("webshop", products=10**9),
    "an object that equals everything": _unpaid(
        "code", "class X:\n def __eq__(s, o): return True\ndef count_upper(t): return X()"
    ),
    "a function that forks": _unpaid("code", "import os\nos.fork()\ndef count_upper(t): return 1"),
    "a function that ends its grader": _unpaid("code", "import os\nos._exit(0)\ndef count_upper(t): pass"),
    "a shell that kills what it sees": _unpaid("terminal", "kill -9 $PPID $$"),
    "a fork bomb in a task": _unpaid("terminal", ":(){ :|:& };:", command_timeout_s=1.0),
    "a terminal without lines": _in_box(
        "SandboxService.OpenSession", lambda box: pb.OpenSessionRequest(sandbox_id=box, terminal=_size())
    ),
    "a dial to port nought": _in_box(
        "SandboxService.Dial",
        lambda box: pb.DialRequest(start=pb.DialStart(sandbox_id=box, port=0)),
        stream=True,
    ),
    "no forks at all": _in_box("SandboxService.Fork", lambda box: _fork(id=box)),
    "a hosted scorer that evaluates": _rpc("EnvService.Make", env_pb2.MakeRequest(env="gem:rg:countdown")),
    "a hosted library's module": _rpc("EnvService.Make", env_pb2.MakeRequest(env="gym:os:system-v0")),
    "a weight that is no number": _rpc(
        "AdminService.SetQuota", admin_pb2.SetQuotaRequest(tenant="x", weight=float("nan")), "admin"
    ),
    "a tenant's name of 4,000 letters": _rpc(
        "AdminService.SetQuota", admin_pb2.SetQuotaRequest(tenant="x" * 4000, weight=1), "admin"
    ),
    "a pool larger than the machine": _rpc(
        "AdminService.SetPool", admin_pb2.SetPoolRequest(spec=pb.SandboxSpec(), size=2**32 - 1), "admin"
    ),
}
