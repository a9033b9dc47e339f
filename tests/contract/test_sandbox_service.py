"""The SandboxService over real sockets of both transports and real processes."""

from __future__ import annotations

import asyncio
import io
import tarfile
from collections.abc import AsyncIterator, Iterable
from pathlib import Path
from typing import Any

import grpc
import pytest
import transports
from sandbox_servers import serving

from rock_env.proto.v1 import sandbox_pb2 as pb

pytestmark = pytest.mark.any_address


@pytest.fixture(params=transports.EACH)
async def stub(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[Any]:
    async with serving(tmp_path, transport=request.param) as made:
        yield made


@pytest.fixture
async def box(stub: Any) -> str:
    return await _made(stub)


async def _made(stub: Any) -> str:
    return str((await stub.Create(pb.CreateSandboxRequest(labels={"team": "a"}))).id)


def code_of(caught: pytest.ExceptionInfo[grpc.aio.AioRpcError]) -> tuple[str, str]:
    return caught.value.code().name, dict(caught.value.trailing_metadata())["rock-error-code"]


async def run(
    stub: Any, box: str, script: str, later: Iterable[pb.ExecRequest] = ()
) -> tuple[bytes, bytes, pb.ExecExit]:
    start = pb.ExecStart(sandbox_id=box, argv=["bash", "-c", script], max_output_bytes=5 << 20)
    call = stub.Exec(iter([pb.ExecRequest(start=start), *later]))
    out, err, exits = bytearray(), bytearray(), []
    async for event in call:
        for data, chunk in ((out, event.stdout), (err, event.stderr)):
            if chunk.data:
                assert chunk.offset == len(data)
                data += chunk.data
        if event.HasField("exit"):
            exits.append(event.exit)
    assert len(exits) == 1
    return bytes(out), bytes(err), exits[0]


@pytest.mark.own_server
async def test_the_life_of_a_sandbox(stub: Any) -> None:
    made = await stub.Create(
        pb.CreateSandboxRequest(spec=pb.SandboxSpec(env={"A": "b"}), idempotency_key="k1")
    )
    assert (made.state, made.backend) == (pb.SANDBOX_STATE_RUNNING, "process")
    again = await stub.Create(
        pb.CreateSandboxRequest(spec=pb.SandboxSpec(env={"A": "b"}), idempotency_key="k1")
    )
    assert again.id == made.id
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await stub.Create(pb.CreateSandboxRequest(idempotency_key="k1"))
    assert code_of(caught) == ("FAILED_PRECONDITION", "failed_precondition")
    assert (await run(stub, made.id, "echo $A"))[0] == b"b\n"
    gone = await stub.Delete(pb.DeleteSandboxRequest(id=made.id))
    assert [change.state for change in gone.history] == [
        pb.SANDBOX_STATE_STARTING,
        pb.SANDBOX_STATE_RUNNING,
        pb.SANDBOX_STATE_DELETING,
        pb.SANDBOX_STATE_DELETED,
    ]
    assert await stub.Delete(pb.DeleteSandboxRequest(id=made.id)) == gone
    assert await stub.Get(pb.GetSandboxRequest(id=made.id)) == gone
    with pytest.raises(grpc.aio.AioRpcError, match="DELETED") as caught:
        await run(stub, made.id, "true")
    assert code_of(caught) == ("NOT_FOUND", "not_found")


@pytest.mark.own_server
async def test_creating_at_once_with_one_key_makes_one_sandbox(stub: Any) -> None:
    request = pb.CreateSandboxRequest(idempotency_key="same")
    made = await asyncio.gather(*(stub.Create(request) for _ in range(5)))
    assert len({info.id for info in made}) == 1
    assert {info.state for info in made} == {pb.SANDBOX_STATE_RUNNING}, "nobody is answered before it runs"
    assert len((await stub.List(pb.ListSandboxesRequest())).sandboxes) == 1


@pytest.mark.own_server
async def test_a_refused_create_leaves_its_key_free(stub: Any) -> None:
    refused = pb.CreateSandboxRequest(spec=pb.SandboxSpec(image="debian"), idempotency_key="k")
    with pytest.raises(grpc.aio.AioRpcError, match="docker") as caught:
        await stub.Create(refused)
    assert code_of(caught) == ("UNIMPLEMENTED", "unimplemented")
    at_once = await asyncio.gather(*(stub.Create(refused) for _ in range(3)), return_exceptions=True)
    assert [type(refusal) for refusal in at_once] == [grpc.aio.AioRpcError] * 3
    assert (await stub.Create(pb.CreateSandboxRequest(idempotency_key="k"))).state == pb.SANDBOX_STATE_RUNNING


@pytest.mark.own_server
async def test_list_filters_and_pages(stub: Any, box: str) -> None:
    others = [(await stub.Create(pb.CreateSandboxRequest(labels={"team": "b"}))).id for _ in range(3)]
    await stub.Delete(pb.DeleteSandboxRequest(id=others.pop()))
    by_label = await stub.List(pb.ListSandboxesRequest(labels={"team": "a"}))
    assert [info.id for info in by_label.sandboxes] == [box]
    deleted = await stub.List(pb.ListSandboxesRequest(states=[pb.SANDBOX_STATE_DELETED]))
    assert len(deleted.sandboxes) == 1
    seen, token = [], ""
    while True:
        page = await stub.List(pb.ListSandboxesRequest(page_size=1, page_token=token))
        seen += [info.id for info in page.sandboxes]
        token = page.next_page_token
        if not token:
            break
    assert seen == sorted([box, *others])


async def test_output_input_and_exits_stream(stub: Any, box: str) -> None:
    data = bytes(range(256)) * 5000
    later = [
        pb.ExecRequest(stdin=data[:1000]),
        pb.ExecRequest(stdin=data[1000:]),
        pb.ExecRequest(stdin_closed=True),
    ]
    out, err, end = await run(stub, box, "cat; echo oops >&2; exit 3", later)
    assert (out, err) == (data, b"oops\n")
    assert (end.exit_code, end.HasField("signal"), end.truncated) == (3, False, False)
    end = (await run(stub, box, "kill -9 $$"))[2]
    assert (end.HasField("exit_code"), end.signal) == (False, 9)


async def test_a_running_command_takes_input_and_signals(stub: Any, box: str) -> None:
    call = stub.Exec()
    start = pb.ExecStart(
        sandbox_id=box, argv=["bash", "-c", "trap 'echo bye; exit 4' TERM; while read x; do echo $x; done"]
    )
    await call.write(pb.ExecRequest(start=start))
    await call.write(pb.ExecRequest(stdin=b"hello\n"))
    assert (await call.read()).stdout.data == b"hello\n"
    await call.write(pb.ExecRequest(signal=15))
    assert (await call.read()).stdout.data == b"bye\n"
    assert (await call.read()).exit.exit_code == 4


async def test_hanging_up_kills_the_command(stub: Any, box: str) -> None:
    call = stub.Exec()
    script = "echo $$ > pid; echo up; exec sleep 600"
    await call.write(pb.ExecRequest(start=pb.ExecStart(sandbox_id=box, argv=["bash", "-c", script])))
    await call.read()
    call.cancel()
    out, _, _ = await run(stub, box, "while kill -0 $(cat pid) 2>/dev/null; do sleep 0.01; done; echo gone")
    assert out == b"gone\n"


async def test_a_timeout_is_told(stub: Any, box: str) -> None:
    start = pb.ExecStart(sandbox_id=box, argv=["sleep", "600"])
    start.timeout.FromMilliseconds(200)
    events = [event async for event in stub.Exec(iter([pb.ExecRequest(start=start)]))]
    assert [(event.exit.timed_out, event.exit.signal) for event in events] == [(True, 9)]


async def test_files(stub: Any, box: str) -> None:
    data = b"0123456789" * 300_000
    parts = [pb.WriteFileRequest(sandbox_id=box, path="a/b.bin", mode=0o600, data=data[:1_000_000])]
    parts += [pb.WriteFileRequest(data=data[1_000_000:])]
    written = await stub.WriteFile(iter(parts))
    assert (written.path, written.size, written.mode) == ("a/b.bin", len(data), 0o600)

    async def read(**what: Any) -> bytes:
        return b"".join(
            [chunk.data async for chunk in stub.ReadFile(pb.ReadFileRequest(sandbox_id=box, **what))]
        )

    assert await read(path="a/b.bin") == data
    assert await read(path="a/b.bin", offset=5, length=1_500_000) == data[5:1_500_005]
    assert await read(path="a/b.bin", offset=len(data)) == b""
    files = (await stub.ListFiles(pb.ListFilesRequest(sandbox_id=box, recursive=True))).files
    assert [(file.path, file.directory) for file in files] == [("a", True), ("a/b.bin", False)]
    assert (await stub.Stat(pb.StatRequest(sandbox_id=box, path="a"))).directory
    for path, code in (("nope", "not_found"), ("/etc/passwd", "invalid_argument")):
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await read(path=path)
        assert code_of(caught)[1] == code


async def test_a_call_is_about_one_sandbox(tmp_path: Path) -> None:
    async with serving(tmp_path, transport="grpc") as stub:  # over HTTP the address of a call says it
        await _says_another_sandbox_later(stub, await _made(stub))


async def _says_another_sandbox_later(stub: Any, box: str) -> None:
    first, end = pb.WriteFileRequest(sandbox_id=box, path="f", data=b"x"), io.BytesIO()
    tarfile.open(fileobj=end, mode="w").close()
    tree = pb.UploadRequest(sandbox_id=box, path="t", tar=end.getvalue())
    opened = await stub.OpenSession(pb.OpenSessionRequest(sandbox_id=box))
    word = pb.SessionInput(session_id=opened.session_id, command="sleep 600")

    async def told(*messages: Any) -> AsyncIterator[Any]:
        for message in messages:
            yield message

    async def session(*messages: pb.SessionInput) -> None:
        async for _ in stub.Session(told(*messages)):
            pass

    for call, name in (
        (stub.WriteFile(told(first, pb.WriteFileRequest(sandbox_id="sb-other", data=b"y"))), "sandbox_id"),
        (stub.WriteFile(told(first, pb.WriteFileRequest(path="g", data=b"y"))), "path"),
        (stub.Upload(told(tree, pb.UploadRequest(sandbox_id="sb-other"))), "sandbox_id"),
        (session(word, pb.SessionInput(session_id="sb-other/s1", signal=2)), "session_id"),
    ):
        with pytest.raises(grpc.aio.AioRpcError, match=f"a later message has the {name}") as caught:
            await call
        assert code_of(caught)[1] == "invalid_argument"
    again = pb.WriteFileRequest(sandbox_id=box, path="f", data=b"y")
    assert (await stub.WriteFile(told(first, again))).size == 2


async def test_a_sandbox_ends_with_its_lifetime(stub: Any) -> None:
    request = pb.CreateSandboxRequest()
    request.spec.lifetime.FromMilliseconds(50)
    info = await stub.Create(request)
    for _ in range(600):
        info = await stub.Get(pb.GetSandboxRequest(id=info.id))
        if info.state == pb.SANDBOX_STATE_DELETED:
            break
        await asyncio.sleep(0.05)
    assert info.reason == "its lifetime ended"


@pytest.mark.own_server
async def test_ports_have_no_urls_where_rest_is_not_served(stub: Any, box: str) -> None:
    with pytest.raises(grpc.aio.AioRpcError, match="start it with --http") as caught:
        await stub.Expose(pb.ExposeRequest(sandbox_id=box, port=80))
    assert code_of(caught) == ("FAILED_PRECONDITION", "failed_precondition")


async def test_a_shell_session_keeps_its_state(stub: Any, box: str) -> None:
    session = (await stub.OpenSession(pb.OpenSessionRequest(sandbox_id=box))).session_id
    said = []
    for command in ("cd /tmp; x=1; f() { echo $x $PWD; }", "f"):
        call = stub.Session(iter([pb.SessionInput(session_id=session, command=command)]))
        events = [event async for event in call]
        assert events[-1].exit.exit_code == 0
        said.append(b"".join(event.output.data for event in events))
    assert said == [b"", b"1 /tmp\n"]
    await stub.CloseSession(pb.CloseSessionRequest(session_id=session))


async def test_a_tree_goes_in_and_comes_out(stub: Any, box: str) -> None:
    await run(stub, box, "mkdir -p a/b; echo one > a/b/c; chmod 700 a/b/c")
    blocks = [chunk.data async for chunk in stub.Download(pb.DownloadRequest(sandbox_id=box, path="a"))]
    first = pb.UploadRequest(sandbox_id=box, path="copy")
    await stub.Upload(iter([first, *(pb.UploadRequest(tar=block) for block in blocks)]))
    assert (await run(stub, box, "cat copy/b/c; stat -c %a copy/b/c"))[0] == b"one\n700\n"


async def test_a_process_outlives_its_caller_and_its_log_is_resumed(stub: Any, box: str) -> None:
    start = pb.ExecStart(sandbox_id=box, argv=["sh", "-c", "echo one; read x < go; echo two"])
    await run(stub, box, "mkfifo go")
    process = (await stub.StartProcess(pb.StartProcessRequest(start=start))).process_id
    logs = stub.ProcessLogs(pb.ProcessLogsRequest(process_id=process, follow=True))
    assert (await logs.read()).stdout.data == b"one\n"
    logs.cancel()
    await run(stub, box, "echo > go")
    rest = pb.ProcessLogsRequest(process_id=process, follow=True, stdout_offset=4)
    events = [event async for event in stub.ProcessLogs(rest)]
    assert events[0].stdout.data == b"two\n"
    assert events[-1].exit.exit_code == 0


@pytest.mark.parametrize(
    ("messages", "code"),
    [
        ([], "invalid_argument"),
        ([pb.ExecRequest(stdin=b"x")], "invalid_argument"),
        ([pb.ExecRequest(start=pb.ExecStart(sandbox_id="sb-no", argv=["true"]))], "not_found"),
        ([pb.ExecRequest(start=pb.ExecStart(argv=["true"], stdout_offset=5))], "invalid_argument"),
    ],
)
async def test_a_bad_exec_is_refused(stub: Any, messages: list[pb.ExecRequest], code: str) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        async for _ in stub.Exec(iter(messages)):
            pass
    assert code_of(caught)[1] == code


async def test_a_bad_message_amid_an_exec_is_refused_and_ends_it(stub: Any, box: str) -> None:
    with pytest.raises(grpc.aio.AioRpcError, match="signal from 1 to 64") as caught:
        await run(stub, box, "sleep 600", [pb.ExecRequest(signal=99)])
    assert code_of(caught) == ("INVALID_ARGUMENT", "invalid_argument")
