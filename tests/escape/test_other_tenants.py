"""Two tenants on one server, one of whom knows every id of the other's: nothing is seen, touched or even confirmed."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from typing import Any

import grpc
import pytest
from fuzz_server import Fuzzed, Stubs, furnish, fuzzed_server
from secure_servers import token

from rock_env.client import Credentials
from rock_env.proto.v1 import admin_pb2, env_pb2, registry_pb2
from rock_env.proto.v1 import sandbox_pb2 as pb
from rock_env.proto.v1.registry_pb2_grpc import RegistryServiceStub
from rock_env.security.token_file import revoke_token


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fuzzed]:
    with fuzzed_server(tmp_path_factory.mktemp("tenants")) as running:
        yield running


@dataclass(frozen=True)
class Acting:
    """The services, with a token on each call."""

    stubs: Stubs
    metadata: tuple[tuple[str, str], ...]

    def with_token(self, text: str) -> Acting:
        return Acting(self.stubs, (("authorization", f"Bearer {text}"),))

    def __call__(self, service: str, name: str, request: Any) -> Any:
        stub = (
            RegistryServiceStub(self.stubs.channel) if service == "images" else getattr(self.stubs, service)
        )
        streamed = name in ("Exec", "Session", "Dial", "WriteFile", "Upload", "Register")
        return getattr(stub, name)(iter([request]) if streamed else request, metadata=self.metadata)


async def outcome(call: Any) -> tuple[str, str]:
    """Return the status of a call, whatever its shape, and what it said."""
    try:
        if hasattr(call, "read"):
            while (await call.read()) is not grpc.aio.EOF:
                pass
        else:
            await call
    except grpc.aio.AioRpcError as error:
        return error.code().name, str(error.details())
    return "OK", ""


@pytest.fixture(params=["grpc", "rest"])
async def red(server: Fuzzed, request: pytest.FixtureRequest) -> AsyncIterator[Acting]:
    address = server.rest.url if request.param == "rest" else server.rest.grpc
    async with Credentials().channel(address) as channel:
        yield Acting(Stubs(channel), server.metadata("stranger"))


@pytest.fixture
async def blue(red: Acting, server: Fuzzed) -> Acting:
    return Acting(red.stubs, server.metadata("sandbox"))


@pytest.fixture
async def theirs(blue: Acting) -> AsyncIterator[dict[str, str]]:
    """Make one of everything for blue; yield the ids."""
    made = {kind: ids[0] for kind, ids in (await furnish(blue.stubs, blue.metadata, "blue's")).items()}
    yield made
    for found in (await blue("box", "List", pb.ListSandboxesRequest())).sandboxes:
        await blue("box", "Delete", pb.DeleteSandboxRequest(id=found.id))


Ids = dict[str, str]
CALLS: dict[str, Callable[[Ids], tuple[str, Any]]] = {
    "Get": lambda ids: ("box", pb.GetSandboxRequest(id=ids["sandbox"])),
    "Pause": lambda ids: ("box", pb.PauseSandboxRequest(id=ids["sandbox"])),
    "Resume": lambda ids: ("box", pb.ResumeSandboxRequest(id=ids["sandbox"])),
    "Renew": lambda ids: ("box", pb.RenewSandboxRequest(id=ids["sandbox"], lease={"seconds": 60})),
    "Snapshot": lambda ids: ("box", pb.SnapshotSandboxRequest(id=ids["sandbox"])),
    "Restore": lambda ids: (
        "box",
        pb.RestoreSandboxRequest(id=ids["sandbox"], snapshot_id=ids["snapshot"]),
    ),
    "Fork": lambda ids: ("box", pb.ForkSandboxRequest(id=ids["sandbox"], count=1)),
    "Create": lambda ids: ("box", pb.CreateSandboxRequest(snapshot_id=ids["snapshot"])),
    "GetSnapshot": lambda ids: ("box", pb.GetSnapshotRequest(id=ids["snapshot"])),
    "DeleteSnapshot": lambda ids: ("box", pb.DeleteSnapshotRequest(id=ids["snapshot"])),
    "Exec": lambda ids: (
        "box",
        pb.ExecRequest(start=pb.ExecStart(sandbox_id=ids["sandbox"], argv=["touch", "seen"])),
    ),
    "OpenSession": lambda ids: ("box", pb.OpenSessionRequest(sandbox_id=ids["sandbox"])),
    "Session": lambda ids: ("box", pb.SessionInput(session_id=ids["session"], command="touch seen")),
    "CloseSession": lambda ids: ("box", pb.CloseSessionRequest(session_id=ids["session"])),
    "StartProcess": lambda ids: (
        "box",
        pb.StartProcessRequest(start=pb.ExecStart(sandbox_id=ids["sandbox"], argv=["touch", "seen"])),
    ),
    "ProcessLogs": lambda ids: ("box", pb.ProcessLogsRequest(process_id=ids["process"])),
    "SignalProcess": lambda ids: ("box", pb.SignalProcessRequest(process_id=ids["process"], signal=9)),
    "ListProcesses": lambda ids: ("box", pb.ListProcessesRequest(sandbox_id=ids["sandbox"])),
    "ReadFile": lambda ids: ("box", pb.ReadFileRequest(sandbox_id=ids["sandbox"], path="f")),
    "WriteFile": lambda ids: (
        "box",
        pb.WriteFileRequest(sandbox_id=ids["sandbox"], path="seen", data=b"x"),
    ),
    "Upload": lambda ids: ("box", pb.UploadRequest(sandbox_id=ids["sandbox"], path="up", tar=bytes(1024))),
    "Download": lambda ids: ("box", pb.DownloadRequest(sandbox_id=ids["sandbox"], path=".")),
    "ListFiles": lambda ids: ("box", pb.ListFilesRequest(sandbox_id=ids["sandbox"])),
    "Stat": lambda ids: ("box", pb.StatRequest(sandbox_id=ids["sandbox"], path="f")),
    "WatchFiles": lambda ids: ("box", pb.WatchFilesRequest(sandbox_id=ids["sandbox"])),
    "Expose": lambda ids: ("box", pb.ExposeRequest(sandbox_id=ids["sandbox"], port=8000)),
    "Dial": lambda ids: (
        "box",
        pb.DialRequest(start=pb.DialStart(sandbox_id=ids["sandbox"], port=8000)),
    ),
    "IssueToken": lambda ids: ("box", pb.IssueSandboxTokenRequest(sandbox_id=ids["sandbox"])),
    "Delete": lambda ids: ("box", pb.DeleteSandboxRequest(id=ids["sandbox"])),
    "env Step": lambda ids: (
        "env",
        env_pb2.StepRequest(env_id=ids["env"], sequence=2, idempotency_key="s", action="go"),
    ),
    "env Reset": lambda ids: (
        "env",
        env_pb2.ResetRequest(env_id=ids["env"], sequence=2, idempotency_key="s", task_id="train/0"),
    ),
    "env Evaluate": lambda ids: (
        "env",
        env_pb2.EvaluateRequest(env_id=ids["env"], sequence=2, idempotency_key="s"),
    ),
    "env Checkpoint": lambda ids: ("env", env_pb2.CheckpointRequest(env_id=ids["env"])),
    "env Fork": lambda ids: ("env", env_pb2.ForkRequest(env_id=ids["env"], count=1)),
    "images Get": lambda _: ("images", registry_pb2.GetImageRequest(name="blue")),
    "images Delete": lambda _: ("images", registry_pb2.DeleteImageRequest(name="blue")),
    "images WatchBuild": lambda _: ("images", registry_pb2.WatchBuildRequest(build_id="b-1")),
}
NO_SUCH = {
    "sandbox": "sb-0123456789abcdef",
    "session": "sb-0123456789abcdef/s1",
    "process": "sb-0123456789abcdef/p1",
    "snapshot": "sn-0123456789abcdef0123",
    "env": "e0123abcd-1",
    "checkpoint": "e0123abcd-2",
}


def told(said: str, ids: Ids) -> str:
    """Return a message without the ids that its sender knew anyhow."""
    for kind in ("session", "process", "sandbox", "snapshot", "checkpoint", "env"):
        said = said.replace(ids[kind], f"<{kind}>")
    return said


async def test_what_is_not_yours_is_not_there(blue: Acting, red: Acting, theirs: Ids) -> None:
    for name, make in CALLS.items():
        call = name.rpartition(" ")[2]
        answers = []
        for ids in (theirs, NO_SUCH):
            service, request = make(ids)
            code, said = await outcome(red(service, call, request))
            answers.append((code, told(said, ids)))
        assert answers[0][0] == "NOT_FOUND", (name, answers)
        assert answers[0] == answers[1], f"{name} tells what is there"
    files = await blue("box", "ListFiles", pb.ListFilesRequest(sandbox_id=theirs["sandbox"]))
    assert [file.path for file in files.files] == ["f"]
    info = await blue("box", "Get", pb.GetSandboxRequest(id=theirs["sandbox"]))
    assert info.state == pb.SANDBOX_STATE_RUNNING
    processes = (await blue("box", "ListProcesses", pb.ListProcessesRequest(sandbox_id=info.id))).processes
    assert [process.HasField("exit") for process in processes] == [False]
    done = await blue(
        "env", "Step", env_pb2.StepRequest(env_id=theirs["env"], sequence=2, idempotency_key="s", action="go")
    )
    assert done.info_json == '{"steps":1}' or '"steps": 1' in done.info_json


async def test_nothing_of_theirs_goes_into_ones_own(red: Acting, theirs: Ids) -> None:
    box = (await red("box", "Create", pb.CreateSandboxRequest())).id
    env = (await red("env", "Make", env_pb2.MakeRequest(env="toy", params_json="{}"))).env_id
    restore = pb.RestoreSandboxRequest(id=box, snapshot_id=theirs["snapshot"])
    assert (await outcome(red("box", "Restore", restore)))[0] == "NOT_FOUND"
    back = env_pb2.RestoreRequest(
        env_id=env, sequence=1, idempotency_key="b", checkpoint_id=theirs["checkpoint"]
    )
    assert (await outcome(red("env", "Restore", back)))[0] == "NOT_FOUND"
    await red("box", "Delete", pb.DeleteSandboxRequest(id=box))


async def test_lists_hold_ones_own_alone(red: Acting, blue: Acting, theirs: Ids) -> None:
    for request in (pb.ListSandboxesRequest(), pb.ListSandboxesRequest(labels={"of": "blue's"})):
        found = (await red("box", "List", request)).sandboxes
        assert theirs["sandbox"] not in [info.id for info in found]
    for request in (pb.ListSnapshotsRequest(), pb.ListSnapshotsRequest(sandbox_id=theirs["sandbox"])):
        assert (await red("box", "ListSnapshots", request)).snapshots == []
    assert (await red("images", "List", registry_pb2.ListImagesRequest())).images == []
    for service, name in (
        ("admin", "ListQuotas"),
        ("admin", "ListPools"),
        ("admin", "Census"),
        ("admin", "Capacity"),
    ):
        request = getattr(admin_pb2, f"{name}Request")()
        assert (await outcome(red(service, name, request)))[0] == "PERMISSION_DENIED", name
    quota = admin_pb2.SetQuotaRequest(tenant="blue", limits=admin_pb2.Limits(boxes=0))
    assert (await outcome(red("admin", "SetQuota", quota)))[0] == "PERMISSION_DENIED"


async def test_a_watch_shows_ones_own_alone(red: Acting, blue: Acting, theirs: Ids) -> None:
    watch = red("box", "Watch", pb.WatchSandboxesRequest())
    own = await red("box", "Create", pb.CreateSandboxRequest())
    await blue("box", "Renew", pb.RenewSandboxRequest(id=theirs["sandbox"], lease={"seconds": 99}))
    await red("box", "Delete", pb.DeleteSandboxRequest(id=own.id))
    seen = []
    while (info := await watch.read()) is not grpc.aio.EOF:
        seen.append(info.owner)
        if info.id == own.id and info.state == pb.SANDBOX_STATE_DELETED:
            break
    watch.cancel()
    assert set(seen) == {"red"}


async def test_a_key_of_theirs_attaches_to_nothing(red: Acting, blue: Acting, theirs: Ids) -> None:
    start = pb.ExecStart(sandbox_id=theirs["sandbox"], argv=["echo", "secret"], idempotency_key="run")
    assert (await outcome(blue("box", "Exec", pb.ExecRequest(start=start))))[0] == "OK"
    attach = pb.ExecStart(sandbox_id=theirs["sandbox"], idempotency_key="run")
    assert (await outcome(red("box", "Exec", pb.ExecRequest(start=attach))))[0] == "NOT_FOUND"
    create = pb.CreateSandboxRequest(idempotency_key="one")
    ours, mine = await blue("box", "Create", create), await red("box", "Create", create)
    assert ours.id != mine.id
    await red("box", "Delete", pb.DeleteSandboxRequest(id=mine.id))


async def test_a_boxes_token_opens_what_happens_inside_it(blue: Acting, theirs: Ids) -> None:
    issue = pb.IssueSandboxTokenRequest(sandbox_id=theirs["sandbox"])
    inside = blue.with_token((await blue("box", "IssueToken", issue)).token)
    other = (await blue("box", "Create", pb.CreateSandboxRequest())).id
    elsewhere = {
        **NO_SUCH,
        "sandbox": other,
        "session": f"{other}/s1",
        "process": f"{other}/p1",
        "snapshot": theirs["snapshot"],
        "env": theirs["env"],
    }
    for name, make in CALLS.items():
        service, request = make(elsewhere)
        code, said = await outcome(inside(service, name.rpartition(" ")[2], request))
        assert code == "PERMISSION_DENIED", (name, code, said)
    outside = ("Get", "Pause", "Renew", "Snapshot", "Restore", "Fork", "Create", "IssueToken", "Delete")
    for name in outside:
        service, request = CALLS[name](theirs)
        assert (await outcome(inside(service, name, request)))[0] == "PERMISSION_DENIED", name
    for name in ("Exec", "ReadFile", "Stat", "ListFiles", "ListProcesses", "OpenSession"):
        service, request = CALLS[name](theirs)
        assert (await outcome(inside(service, name, request)))[0] == "OK", name


async def test_tokens_end_when_they_expire_or_are_revoked(red: Acting, server: Fuzzed) -> None:
    tokens = server.rest.tokens
    gone = token(tokens, "red", "sandbox", expires_at=time.time() - 1, now=1.0)
    assert (await outcome(red.with_token(gone)("box", "List", pb.ListSandboxesRequest())))[
        0
    ] == "UNAUTHENTICATED"
    text = token(tokens, "red", "sandbox")
    later = red.with_token(text)
    box = (await later("box", "Create", pb.CreateSandboxRequest())).id
    revoke_token(tokens, text.split("_")[1])
    for name in ("Get", "Exec", "WriteFile", "Delete"):
        service, request = CALLS[name]({**NO_SUCH, "sandbox": box})
        assert (await outcome(later(service, name, request)))[0] == "UNAUTHENTICATED", name
    await red("box", "Delete", pb.DeleteSandboxRequest(id=box))


async def test_who_wants_everything_leaves_the_others_their_share(red: Acting, blue: Acting) -> None:
    async def greedy() -> str:
        call = red.stubs.box.Create(pb.CreateSandboxRequest(), metadata=red.metadata, timeout=1.0)
        return (await outcome(call))[0]

    wanting = [asyncio.ensure_future(greedy()) for _ in range(60)]
    mine = [(await blue("box", "Create", pb.CreateSandboxRequest())).id for _ in range(4)]
    codes = await asyncio.gather(*wanting)
    assert codes.count("OK") <= 16, "its quota"
    assert set(codes) <= {"OK", "RESOURCE_EXHAUSTED", "DEADLINE_EXCEEDED"}
    for box in mine:
        await blue("box", "Delete", pb.DeleteSandboxRequest(id=box))
    for found in (await red("box", "List", pb.ListSandboxesRequest())).sandboxes:
        await red("box", "Delete", pb.DeleteSandboxRequest(id=found.id))
