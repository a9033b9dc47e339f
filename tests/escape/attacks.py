"""Attacks on ROCK that its callers can make, by name: strangers first, then tenants. Each must be refused.

An attack is a function of the site; what it returns is how the server answered. Those on the gateway are in
`attacks_gateway`. `test_attacks` tries each, and `benchmarks.hostile` tries them beside a neighbour.
"""

from __future__ import annotations

import asyncio
import io
import itertools
import json
import tarfile
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from typing import Any

from fuzz_server import OWN_WORDS
from google.protobuf.duration_pb2 import Duration
from hostile_site import Answer, Site

from rock_env.proto.v1 import env_pb2, registry_pb2
from rock_env.proto.v1 import sandbox_pb2 as pb

__all__ = ["ATTACKS", "SMALL", "Attack"]

Attack = Callable[[Site], Awaitable[Answer]]

MIB = 1 << 20
DEEP = b'{"labels":' * 100_000
"""JSON that never ends and nests a hundred thousand times."""


def _rpc(name: str, *messages: Any, who: str = "sandbox") -> Attack:
    return lambda site: site.call(name, *messages, who=who)


def _rest(verb: str, path: str, body: Any, who: str = "sandbox", **headers: str) -> Attack:
    return lambda site: site.http(verb, path, who=who, body=body, **headers)


# -- strangers


async def _large_bodies(site: Site) -> Answer:
    """Send four bodies of 64 MiB at once, without a token; return the worst answer."""
    body = b'{"labels": {"a": "' + b"x" * (64 * MIB) + b'"}}'
    answers = await asyncio.gather(*(site.http("POST", "/v1/sandboxes", who="", body=body) for _ in range(4)))
    return next((answer for answer in answers if answer.status not in ("401", "cut")), answers[0])


async def _endless() -> AsyncIterator[bytes]:
    for _ in range(1024):
        yield b" " * (64 << 10)


async def _cut_or_refused(site: Site, answer: Answer) -> Answer:
    """A peer that is told to go while it still writes may see the connection cut; the next request tells why."""
    if answer.status == "cut":
        return await site.http("POST", "/v1/sandboxes", who="", body=b"{}")
    return answer


async def _endless_body(site: Site) -> Answer:
    return await _cut_or_refused(site, await site.http("POST", "/v1/sandboxes", who="", body=_endless()))


async def _large_bodies_refused(site: Site) -> Answer:
    return await _cut_or_refused(site, await _large_bodies(site))


async def _e2b_stranger(site: Site) -> Answer:
    answer = await site.http(
        "POST", "/e2b/sandboxes", who="", body=b"[" * (8 * MIB), **{"x-api-key": "e2b_nobody"}
    )
    return await _cut_or_refused(site, answer)


def _stranger_message(size: int) -> Attack:
    label = b"x" * size
    return lambda site: site.call(
        "SandboxService.Create", _field(3, _field(1, b"k") + _field(2, label)), who=""
    )


def _field(number: int, data: bytes) -> bytes:
    """Return a length-delimited protobuf field."""
    out, size = bytearray([number << 3 | 2]), len(data)
    while size > 127:
        out.append(size & 127 | 128)
        size >>= 7
    return bytes(out) + bytes([size]) + data


async def _streamed(site: Site, messages: Callable[[], Iterator[Any]], *, who: str = "sandbox") -> Answer:
    """Open a Register and stream; again where gRPC's client dropped the answer, which overtook what it still wrote."""
    for _ in range(5):
        answer = await site.call("RegistryService.Register", messages(), who=who)
        if not answer.said.startswith(OWN_WORDS):
            break
    return answer


async def _flood_of_strangers(site: Site) -> Answer:
    """Open a Register without a token and stream as long as it is taken."""
    block = registry_pb2.RegisterRequest(tar=bytes(MIB))
    answer = await site.call("RegistryService.Register", itertools.repeat(block, 256), who="")
    if answer.said.startswith(OWN_WORDS):  # the flood was cut off: what was said to it, a small one hears
        return await _streamed(site, lambda: iter([block]), who="")
    return answer


_REFLECTION = "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo"


async def _reflection(site: Site) -> Answer:
    return await site.raw(_REFLECTION, (iter([_field(7, b"")]),), True, True, {"timeout": 60.0})


async def _large_header(site: Site) -> Answer:
    return await site.call("SandboxService.List", b"", more=(("x-large", "x" * MIB),))


async def _box_token_elsewhere(site: Site) -> Answer:
    other = site.known.others["sandbox"][0]
    return await site.call("SandboxService.Stat", pb.StatRequest(sandbox_id=other, path="f"), who="inside")


async def _smuggled(site: Site) -> Answer:
    key = site.keys["sandbox"]
    return await site.bytes(
        b"POST /v1/sandboxes HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer " + key.encode() + b"\r\n"
        b"Content-Type: application/json\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n"
        b"Connection: close\r\n\r\n2\r\n{}\r\n0\r\n\r\n"
    )


async def _forged_port(site: Site) -> Answer:
    box = site.known.own["sandbox"][0]
    return await site.http("GET", f"/v1/sandboxes/{box}/ports/8000/{'0' * 43}/", who="")


STRANGERS: Mapping[str, Attack] = {
    "a message of 60 MiB": _stranger_message(60 * MIB),
    "bytes that are no message": _rpc("SandboxService.Create", b"\xff" * 1000, who=""),
    "a token that nobody gave out": _rpc("SandboxService.List", b"", who="rock_0_" + "A" * 43),
    "an expired token": _rpc("SandboxService.List", b"", who="expired"),
    "a scope that the token lacks": _rpc("SandboxService.List", b"", who="env only"),
    "operators' calls": _rpc("AdminService.Census", b"", who="sandbox"),
    "reflection": _reflection,
    "a stream without a token": _flood_of_strangers,
    "four bodies of 64 MiB": _large_bodies_refused,
    "a body without end": _endless_body,
    "a body for E2B": _e2b_stranger,
    "a header of a megabyte": _large_header,
    "a sandbox's token for another sandbox": _box_token_elsewhere,
    "a sandbox's token for Create": _rpc("SandboxService.Create", b"", who="inside"),
    "two lengths of one body": _smuggled,
    "a port's URL with a guessed secret": _forged_port,
}


# -- parameters of environments


def _splits(env: str, **params: Any) -> Attack:
    request = env_pb2.ListSplitsRequest(env=env, params_json=json.dumps(params))
    return _rpc("EnvService.ListSplits", request)


def _made(env: str, params_json: str) -> Attack:
    return _rpc("EnvService.Make", env_pb2.MakeRequest(env=env, params_json=params_json))


PARAMETERS: Mapping[str, Attack] = {
    "sokoban's file: the shadow file": _splits("sokoban", boxoban_file="/etc/shadow"),
    "sokoban's file: the server's variables": _splits("sokoban", boxoban_file="/proc/self/environ"),
    "sokoban's file: a device": _splits("sokoban", boxoban_file="/dev/zero"),
    "sokoban's file in a Make": _made("sokoban", '{"boxoban_file": "/etc/shadow"}'),
    "swe's path: another place": _splits("swe", source="quixbugs", path="/etc"),
    "swe's path in a Make": _made("swe", '{"source": "quixbugs", "path": "/var"}'),
    "a lake of a million squares a side": _splits("frozen_lake", size=1_000_000),
    "parameters of 20 MiB": _made("toy", '{"a": "' + "x" * (20 * MIB) + '"}'),
    "parameters nested 100,000 times": _made("toy", '{"a":' * 100_000),
    "parameters that are a number of 100,000 digits": _made("frozen_lake", '{"size": ' + "9" * 100_000 + "}"),
    "an environment by a module's name": _made("os:system", "{}"),
    "an environment by a file's name": _made("/etc/passwd:x", "{}"),
}


# -- archives


def _tar(*members: tuple[tarfile.TarInfo, bytes], pax: Mapping[str, str] | None = None) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for info, data in members:
            info.size = len(data)
            if pax:
                info.pax_headers = dict(pax)
            archive.addfile(info, io.BytesIO(data))
    return out.getvalue()


def _member(name: str, data: bytes = b"FROM scratch\n", kind: bytes = tarfile.REGTYPE, link: str = "") -> Any:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, link
    return info, data


def _sparse(version: str) -> bytes:
    """Return an archive with a member that claims 2^60 bytes and holds none."""
    size = str(1 << 60)
    if version == "1.0":
        pax = {"GNU.sparse.major": "1", "GNU.sparse.minor": "0", "GNU.sparse.name": "Dockerfile"}
        return _tar(_member("Dockerfile", b"0\n" + bytes(510)), pax={**pax, "GNU.sparse.realsize": size})
    if version == "0.1":
        pax = {"GNU.sparse.size": size, "GNU.sparse.numblocks": "1", "GNU.sparse.map": f"{(1 << 60) - 1},1"}
        return _tar(_member("Dockerfile", b"x"), pax=pax)
    info, data = _member("Dockerfile", b"x" * 512)
    info.size = len(data)
    block = bytearray(info.tobuf(tarfile.GNU_FORMAT))
    block[156:157] = tarfile.GNUTYPE_SPARSE
    block[386:398], block[398:410] = _octal(0), _octal(512)
    block[483:495] = b"\x80" + (1 << 60).to_bytes(11, "big")
    block[148:156] = b" " * 8
    block[148:156] = b"%06o\0 " % sum(block)
    return bytes(block) + data + bytes(1024)


def _octal(value: int) -> bytes:
    return b"%011o\0" % value


def _register(*tars: bytes) -> Attack:
    def messages() -> Iterator[Any]:
        yield registry_pb2.RegisterRequest(start=registry_pb2.RegisterStart(name="hostile"))
        for tar in tars:
            for at in range(0, len(tar), MIB):
                yield registry_pb2.RegisterRequest(tar=tar[at : at + MIB])

    return lambda site: _streamed(site, messages)


def _upload(tar: bytes) -> Attack:
    async def act(site: Site) -> Answer:
        box = site.known.own["sandbox"][0]
        return await site.call(
            "SandboxService.Upload", iter([pb.UploadRequest(sandbox_id=box, path=".", tar=tar)])
        )

    return act


ARCHIVES: Mapping[str, Attack] = {
    "a context with a sparse member (PAX 1.0)": _register(_sparse("1.0")),
    "a context with a sparse member (PAX 0.1)": _register(_sparse("0.1")),
    "a context with a sparse member (GNU)": _register(_sparse("gnu")),
    "a context that leaves its folder": _register(_tar(_member("../../etc/cron.d/x"))),
    "a context with an absolute name": _register(_tar(_member("/etc/cron.d/x"))),
    "a context with a device": _register(_tar(_member("Dockerfile", b"", tarfile.CHRTYPE))),
    "a context that is no archive": _register(b"\x1f\x8b" + b"\0" * 4096),
    "a header that never ends": _register(_tar(_member("Dockerfile"), pax={"comment": "x" * (20 * MIB)})),
    "files with a sparse member (PAX 1.0)": _upload(_sparse("1.0")),
    "files with a sparse member (GNU)": _upload(_sparse("gnu")),
    "files that leave their folder": _upload(_tar(_member("../../../etc/passwd"))),
    "files that are no archive": _upload(b"\xff" * 10_000),
}


# -- sizes and numbers


def _create(**fields: Any) -> Attack:
    return _rpc("SandboxService.Create", pb.CreateSandboxRequest(**fields))


def _created(body: Any) -> Attack:
    return _rest("POST", "/v1/sandboxes", body)


def _spec(**fields: Any) -> Attack:
    return _create(spec=pb.SandboxSpec(**fields))


def _in_box(name: str, make: Callable[[str], Any]) -> Attack:
    return lambda site: site.call(name, make(site.known.own["sandbox"][0]))


def _exec(**fields: Any) -> Attack:
    async def act(site: Site) -> Answer:
        start = pb.ExecStart(sandbox_id=site.known.own["sandbox"][0], **fields)
        return await site.call("SandboxService.Exec", iter([pb.ExecRequest(start=start)]))

    return act


def _many_steps(site: Site) -> Awaitable[Answer]:
    items = [env_pb2.StepRequest(env_id="e", sequence=1)] * 200_000
    return site.call("EnvService.StepMany", env_pb2.StepManyRequest(items=items))


SIZES: Mapping[str, Attack] = {
    "a label of 20 MiB": _create(labels={"a": "x" * (20 * MIB)}),
    "100,000 labels": _create(labels={str(number): "" for number in range(100_000)}),
    "a variable of 20 MiB": _spec(env={"A": "x" * (20 * MIB)}),
    "a key of a megabyte": _create(idempotency_key="k" * MIB),
    "a folder of a megabyte": _spec(workdir="/" + "x" * MIB),
    "an image's name of a megabyte": _spec(image="x" * MIB),
    "100,000 modules to import": _spec(preload=["os"] * 100_000),
    "a million words of a command": _exec(argv=["x"] * 1_000_000),
    "a batch of 200,000": _many_steps,
    "a box of all memory": _spec(resources=pb.Resources(memory_bytes=1 << 62)),
    "a box of minus infinite processors": _spec(resources=pb.Resources(cpus=float("-inf"))),
    "a lifetime of ten thousand years": _spec(lifetime=Duration(seconds=315_576_000_000)),
    "a lease that is no number": _created(b'{"lease": NaN}'),
    "four billion forks": _in_box(
        "SandboxService.Fork", lambda box: pb.ForkSandboxRequest(id=box, count=2**32 - 1)
    ),
    "a body of 8 MiB": _created({"labels": {"a": "x" * (8 * MIB)}}),
    "a body nested 100,000 times": _created(DEEP),
    "a body of 300,000 items": _rest("POST", "/v1/batch/close", {"items": [{}] * 300_000}),
    "a port beyond all ports": _in_box(
        "SandboxService.Expose", lambda box: pb.ExposeRequest(sandbox_id=box, port=70_000)
    ),
    "a path with a zero byte": _in_box(
        "SandboxService.Stat", lambda box: pb.StatRequest(sandbox_id=box, path="a\0b")
    ),
    "a read of the guest's variables": _in_box(
        "SandboxService.ReadFile", lambda box: pb.ReadFileRequest(sandbox_id=box, path="/proc/1/environ")
    ),
    "a read of the host's shadow file": _in_box(
        "SandboxService.ReadFile",
        lambda box: pb.ReadFileRequest(sandbox_id=box, path="../../../../etc/shadow"),
    ),
}


# -- other tenants, and more than one's share


def _theirs(name: str, make: Callable[[Mapping[str, Any]], Any]) -> Attack:
    return lambda site: site.call(name, make({kind: ids[0] for kind, ids in site.known.others.items()}))


async def _beyond_the_quota(site: Site) -> Answer:
    """Ask for boxes at once until one is refused; give back what was made."""
    request = pb.CreateManyRequest(items=[pb.CreateSandboxRequest()] * 9)
    return await site.call("SandboxService.CreateMany", request, who="stranger")


async def _too_many_environments(site: Site) -> Answer:
    """Make environments until one is refused; return what the last was told."""
    one = env_pb2.MakeRequest(env="toy", params_json="{}")
    for _ in range(4):
        await site.call("EnvService.MakeMany", env_pb2.MakeManyRequest(items=[one] * 1000), who="stranger")
        told = await site.call("EnvService.Make", one, who="stranger")
        if told.refused:
            return told
    return Answer("OK", "4,000 environments were made")


TENANTS: Mapping[str, Attack] = {
    "another's sandbox": _theirs("SandboxService.Get", lambda ids: pb.GetSandboxRequest(id=ids["sandbox"])),
    "another's file": _theirs(
        "SandboxService.ReadFile", lambda ids: pb.ReadFileRequest(sandbox_id=ids["sandbox"], path="f")
    ),
    "the end of another's sandbox": _theirs(
        "SandboxService.Delete", lambda ids: pb.DeleteSandboxRequest(id=ids["sandbox"])
    ),
    "a token for another's sandbox": _theirs(
        "SandboxService.IssueToken", lambda ids: pb.IssueSandboxTokenRequest(sandbox_id=ids["sandbox"])
    ),
    "another's snapshot as one's own": _theirs(
        "SandboxService.Create", lambda ids: pb.CreateSandboxRequest(snapshot_id=ids["snapshot"])
    ),
    "another's environment": _theirs(
        "EnvService.Step", lambda ids: env_pb2.StepRequest(env_id=ids["env"], sequence=2, action="x")
    ),
    "another's checkpoint": lambda site: site.call(
        "EnvService.Restore",
        env_pb2.RestoreRequest(
            env_id=site.known.own["env"][0],
            sequence=2,
            idempotency_key="r",
            checkpoint_id=site.known.others["checkpoint"][0],
        ),
    ),
    "more boxes than the quota": _beyond_the_quota,
    "more environments than the quota": _too_many_environments,
}

ATTACKS: Mapping[str, Attack] = {**STRANGERS, **PARAMETERS, **ARCHIVES, **SIZES, **TENANTS}

SMALL = (
    "bytes that are no message",
    "a token that nobody gave out",
    "a scope that the token lacks",
    "a sandbox's token for another sandbox",
    "two lengths of one body",
    "a port's URL with a guessed secret",
    "sokoban's file: the shadow file",
    "sokoban's file: a device",
    "swe's path in a Make",
    "a lake of a million squares a side",
    "parameters nested 100,000 times",
    "a context with a sparse member (PAX 1.0)",
    "a context with a sparse member (GNU)",
    "a context that leaves its folder",
    "files with a sparse member (PAX 1.0)",
    "files that leave their folder",
    "a key of a megabyte",
    "a box of all memory",
    "four billion forks",
    "a body nested 100,000 times",
    "a path with a zero byte",
    "another's file",
    "another's snapshot as one's own",
    "more boxes than the quota",
)
"""Attacks of at most a few megabytes, which one core can send many of in a second."""
