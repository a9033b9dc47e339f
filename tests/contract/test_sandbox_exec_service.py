"""Exec, processes, sessions and files of the SandboxService, over a real socket and real processes."""

from __future__ import annotations

import asyncio
import io
import tarfile
from collections.abc import AsyncIterator, Iterable
from pathlib import Path
from typing import Any

import grpc
import pytest
from sandbox_servers import serving

from rock_env.proto.v1 import sandbox_pb2 as pb

pytestmark = pytest.mark.any_address


@pytest.fixture
async def stub(tmp_path: Path) -> AsyncIterator[Any]:
    async with serving(tmp_path, transport="grpc") as made:
        yield made


@pytest.fixture
async def box(stub: Any) -> str:
    return str((await stub.Create(pb.CreateSandboxRequest())).id)


def start(box: str, script: str, **more: Any) -> pb.ExecRequest:
    return pb.ExecRequest(start=pb.ExecStart(sandbox_id=box, argv=["sh", "-c", script], **more))


async def outcome(events: Any) -> tuple[bytes, bytes, pb.ExecExit | None]:
    out, err, end = b"", b"", None
    async for event in events:
        out += event.stdout.data
        err += event.stderr.data
        end = event.exit if event.HasField("exit") else end
    return out, err, end


async def run(stub: Any, requests: Iterable[pb.ExecRequest]) -> tuple[bytes, bytes, pb.ExecExit | None]:
    return await outcome(stub.Exec(iter(requests)))


def code_of(caught: pytest.ExceptionInfo[grpc.aio.AioRpcError]) -> str:
    return str(dict(caught.value.trailing_metadata())["rock-error-code"])


async def test_a_dropped_exec_goes_on_by_key_and_offset(stub: Any, box: str) -> None:
    script = "echo ran >> count; seq 1 5000; read x; seq 5001 20000; echo got $x >&2; exit 3"
    call = stub.Exec()
    await call.write(start(box, script, idempotency_key="k"))
    seen = b""
    while len(seen) < 10_000:
        seen += (await call.read()).stdout.data
    call.cancel()
    resumed = pb.ExecRequest(start=pb.ExecStart(sandbox_id=box, idempotency_key="k", stdout_offset=len(seen)))
    later = [pb.ExecRequest(stdin=b"this\n"), pb.ExecRequest(stdin_closed=True)]
    out, err, end = await run(stub, [resumed, *later])
    assert seen + out == b"".join(b"%d\n" % number for number in range(1, 20001))
    assert (err, end.exit_code) == (b"got this\n", 3)
    again, _, end = await run(stub, [start(box, script, idempotency_key="k")])
    assert (again, end.exit_code) == (seen + out, 3)
    assert (await run(stub, [start(box, "cat count")]))[0] == b"ran\n"


async def test_a_cut_off_caller_does_not_end_the_input_of_its_key(stub: Any, box: str) -> None:
    call = stub.Exec()
    await call.write(start(box, "cat > got; echo whole", idempotency_key="k"))
    await call.write(pb.ExecRequest(stdin=b"first half, "))
    while (await run(stub, [start(box, "test -s got")]))[2].exit_code:
        pass
    call.cancel()
    later = [pb.ExecRequest(stdin=b"first half, second half"), pb.ExecRequest(stdin_closed=True)]
    out, _, end = await run(stub, [start(box, "cat > got; echo whole", idempotency_key="k"), *later])
    assert (out, end.exit_code) == (b"whole\n", 0)
    assert (await run(stub, [start(box, "cat got")]))[0] == b"first half, second half"


async def test_a_command_without_input_is_one_message(stub: Any, box: str) -> None:
    """A second one may meet the end of a short command, and gRPC then fails the whole call at its sender."""
    call = stub.Exec()
    await call.write(start(box, "cat; echo end", idempotency_key="empty", no_stdin=True))
    out, err, end = await outcome(call)
    assert end is not None
    assert (out, err, end.exit_code) == (b"end\n", b"", 0)


async def test_refusals_of_exec(stub: Any, box: str) -> None:
    await run(stub, [start(box, "true", idempotency_key="k")])
    for request, code in (
        (start(box, "false", idempotency_key="k"), "failed_precondition"),
        (pb.ExecRequest(start=pb.ExecStart(sandbox_id=box, idempotency_key="other")), "not_found"),
        (start(box, "true", idempotency_key="new", stdout_offset=7), "not_found"),
        (start(box, "true", idempotency_key="k", stdout_offset=7), "failed_precondition"),
        (start(box, "true", stdout_offset=7), "invalid_argument"),
        (start(box, "true", idempotency_key="big", max_output_bytes=1 << 40), "invalid_argument"),
    ):
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await run(stub, [request])
        assert code_of(caught) == code, request


async def test_processes(stub: Any, box: str) -> None:
    request = pb.StartProcessRequest(
        start=start(box, "trap 'exit 9' TERM; echo up; while :; do sleep 0.05; done").start
    )
    request.start.idempotency_key = "p"
    made = await stub.StartProcess(request)
    assert await stub.StartProcess(request) == made
    assert made.process_id.startswith(f"{box}/p")
    logs = stub.ProcessLogs(pb.ProcessLogsRequest(process_id=made.process_id, follow=True))
    assert (await logs.read()).stdout == pb.OutputChunk(offset=0, data=b"up\n")
    (process,) = (await stub.ListProcesses(pb.ListProcessesRequest(sandbox_id=box))).processes
    assert (process.process_id, process.argv[0], process.HasField("exit")) == (made.process_id, "sh", False)
    await stub.SignalProcess(pb.SignalProcessRequest(process_id=made.process_id, signal=15))
    while not (event := await logs.read()).HasField("exit"):
        pass  # dash says on stderr what ended its child
    assert event.exit.exit_code == 9
    out, _, end = await outcome(
        stub.ProcessLogs(pb.ProcessLogsRequest(process_id=made.process_id, stdout_offset=2))
    )
    assert (out, end.exit_code) == (b"\n", 9)
    (process,) = (await stub.ListProcesses(pb.ListProcessesRequest(sandbox_id=box))).processes
    assert process.exit.exit_code == 9
    for bad, code in (("p1", "invalid_argument"), (f"{box}/p7", "not_found"), ("sb-none/p1", "not_found")):
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await stub.SignalProcess(pb.SignalProcessRequest(process_id=bad, signal=15))
        assert code_of(caught) == code


async def test_a_shell_session(stub: Any, box: str) -> None:
    opened = await stub.OpenSession(pb.OpenSessionRequest(sandbox_id=box, idempotency_key="s"))
    assert await stub.OpenSession(pb.OpenSessionRequest(sandbox_id=box, idempotency_key="s")) == opened
    sent = [
        pb.SessionInput(session_id=opened.session_id, command="cd /tmp; n=1", idempotency_key="a"),
        pb.SessionInput(command="n=$((n + 1)); pwd; echo $n >&2; false", idempotency_key="b"),
    ]
    for _ in range(2):  # a caller that repeats itself changes nothing
        seen = [output async for output in stub.Session(iter(sent))]
        assert [output.exit.exit_code for output in seen if output.HasField("exit")] == [0, 1]
        assert b"".join(output.output.data for output in seen) == b"/tmp\n"
        assert b"".join(output.stderr.data for output in seen) == b"2\n"
    slow = pb.SessionInput(session_id=opened.session_id, command="sleep 600")
    slow.timeout.FromMilliseconds(200)
    (end,) = [output.exit async for output in stub.Session(iter([slow])) if output.HasField("exit")]
    assert (end.timed_out, end.signal) == (True, 9)
    with pytest.raises(grpc.aio.AioRpcError, match="takes command and signal") as caught:
        async for _ in stub.Session(iter([slow, pb.SessionInput(data=b"x")])):
            pass
    assert code_of(caught) == "invalid_argument"
    await stub.CloseSession(pb.CloseSessionRequest(session_id=opened.session_id))


async def test_a_terminal_session(stub: Any, box: str) -> None:
    size = pb.TerminalSize(rows=24, columns=80)
    opened = await stub.OpenSession(pb.OpenSessionRequest(sandbox_id=box, terminal=size))
    call = stub.Session()
    await call.write(pb.SessionInput(session_id=opened.session_id, data=b"stty size\n"))
    seen = b""
    while b"24 80" not in seen:
        seen += (await call.read()).output.data
    await call.write(pb.SessionInput(resize=pb.TerminalSize(rows=40, columns=100)))
    await call.write(pb.SessionInput(data=b"stty size\n"))
    while b"40 100" not in seen:
        seen += (await call.read()).output.data
    call.cancel()
    call = stub.Session()  # comes back to where it was
    await call.write(pb.SessionInput(session_id=opened.session_id, offset=len(seen)))
    await call.write(pb.SessionInput(data=b"exit 6\n"))
    async for output in call:
        if output.HasField("exit"):
            assert output.exit.exit_code == 6
        else:
            assert output.output.offset >= len(seen)


async def test_files_stream_and_trees_pass(stub: Any, box: str) -> None:
    data = bytes(range(256)) * 40_000
    parts = [
        pb.WriteFileRequest(
            sandbox_id=box, path="a/log", append=True, idempotency_key="k", data=data[:500_000]
        )
    ]
    parts += [
        pb.WriteFileRequest(data=data[at : at + 1_000_000]) for at in range(500_000, len(data), 1_000_000)
    ]
    for _ in range(2):
        assert (await stub.WriteFile(iter(parts))).size == len(data)
    ask = pb.ReadFileRequest(sandbox_id=box, path="a/log", offset=7, length=3_000_000)
    assert b"".join([chunk.data async for chunk in stub.ReadFile(ask)]) == data[7:3_000_007]
    down = stub.Download(pb.DownloadRequest(sandbox_id=box, path="a"))
    raw = b"".join([chunk.data async for chunk in down])
    with tarfile.open(fileobj=io.BytesIO(raw)) as tar:
        assert tar.extractfile("log").read() == data
    up = [pb.UploadRequest(sandbox_id=box, path="b")]
    up += [pb.UploadRequest(tar=raw[at : at + 300_000]) for at in range(0, len(raw), 300_000)]
    assert await stub.Upload(iter(up)) == pb.TreeSummary(files=1, bytes=len(data))
    assert (await run(stub, [start(box, "cmp a/log b/log")]))[2].exit_code == 0
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await stub.Upload(iter(up[:-1]))
    assert code_of(caught) == "invalid_argument"


async def test_a_write_whose_caller_is_cut_off_changes_nothing(stub: Any, box: str) -> None:
    await stub.WriteFile(iter([pb.WriteFileRequest(sandbox_id=box, path="kept", data=b"before")]))
    for _ in range(20):
        call = stub.WriteFile()
        await call.write(pb.WriteFileRequest(sandbox_id=box, path="kept", data=b"x" * 100_000, more=True))
        await asyncio.sleep(0.005)
        call.cancel()
    out, _, _ = await run(stub, [start(box, "cat kept")])
    assert out == b"before"


async def test_changes_are_pushed(stub: Any, box: str) -> None:
    call = stub.WatchFiles(pb.WatchFilesRequest(sandbox_id=box, path=".", recursive=True))
    await call.initial_metadata()
    await run(stub, [start(box, "mkdir d; echo 1 > d/new")])
    seen = [await call.read()]
    while seen[-1].path != "d/new":
        seen.append(await call.read())
    assert seen[0] == pb.FileEvent(path="d", kind="created")
    assert seen[-1].kind == "created"
    call.cancel()
