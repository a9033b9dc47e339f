"""What a box does beyond running commands, on every backend: sessions, background processes, trees, changes, big files."""

from __future__ import annotations

import asyncio
import io
import os
import tarfile
from collections.abc import AsyncIterator
from contextlib import aclosing

import pytest
from test_sandbox_backend import backend, box, make_backend, sh  # noqa: F401  (fixtures)

from rock_env.errors import FailedPrecondition, InvalidArgument, NotFound
from rock_env.sandbox import CommandEnd, ExecResult, FileChange, OutputChunk, Sandbox


async def in_session(box: Sandbox, session: str, text: str, **more: object) -> ExecResult:  # noqa: F811
    async with box.session_command(session, text, **more) as command:  # type: ignore[arg-type]
        return await command.result()


async def cut(data: bytes, size: int) -> AsyncIterator[bytes]:
    for start in range(0, len(data), size):
        yield data[start : start + size]


def tar_of(*members: tuple[tarfile.TarInfo, bytes]) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        for info, content in members:
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return out.getvalue()


def member(name: str, *, mode: int = 0o644, kind: bytes = tarfile.REGTYPE, link: str = "") -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.mode, info.type, info.linkname = mode, kind, link
    return info


async def test_a_shell_session_keeps_its_state(box: Sandbox) -> None:  # noqa: F811
    session = await box.open_session()
    assert (await in_session(box, session, "cd /tmp; x='it''s 5'; export y=6; f() { echo \"f $x $1\"; }")).ok
    result = await in_session(box, session, "pwd; f 3; sh -c 'echo $y' >&2; (exit 7)")
    assert (result.exit_code, result.stdout, result.stderr) == (7, b"/tmp\nf its 5 3\n", b"6\n")
    assert (await in_session(box, session, "if")).exit_code == 2, "a syntax error ends its own text alone"
    assert (
        await in_session(box, session, "printf 'no newline'; printf %s \"'quoted'\"")
    ).stdout == b"no newline'quoted'"
    assert (await in_session(box, session, "cat")).ok, "there is no input to wait for"
    assert (await in_session(box, session, "f on")).stdout == b"f its 5 on\n"


async def test_commands_of_a_session_take_turns(box: Sandbox) -> None:  # noqa: F811
    session = await box.open_session(["bash", "--norc"])
    results = await asyncio.gather(
        *(in_session(box, session, f"n=$((n + 1)); echo {n} $n") for n in range(20))
    )
    assert [result.stdout for result in results] == [b"%d %d\n" % (n, n + 1) for n in range(20)]
    await box.close_session(session)
    with pytest.raises(FailedPrecondition, match="ended"):
        await in_session(box, session, "true")


async def test_a_sessions_command_runs_once_per_key(box: Sandbox) -> None:  # noqa: F811
    session = await box.open_session()
    for _ in range(3):
        assert (await in_session(box, session, "n=$((n + 1)); echo $n", key="k")).stdout == b"1\n"
    assert (await in_session(box, session, "n=$((n + 1)); echo $n", key="l")).stdout == b"2\n"


async def test_a_sessions_command_times_out_and_the_shell_goes_on(box: Sandbox) -> None:  # noqa: F811
    session = await box.open_session()
    await in_session(box, session, "x=kept")
    result = await in_session(box, session, "echo begun; sleep 600; echo never", timeout_s=0.3)
    assert (result.timed_out, result.exit_code, result.signal) == (True, None, 9)
    assert result.stdout.startswith(b"begun\n")
    assert (await in_session(box, session, "echo $x")).stdout == b"kept\n"
    endless = await in_session(box, session, "while :; do :; done", timeout_s=0.2)
    assert endless.timed_out
    with pytest.raises(FailedPrecondition, match="ended"):
        await in_session(box, session, "echo $x")


async def test_leaving_the_shell_ends_the_session(box: Sandbox) -> None:  # noqa: F811
    session = await box.open_session()
    assert (await in_session(box, session, "exit 4")).exit_code == 4
    with pytest.raises(FailedPrecondition, match="ended"):
        await in_session(box, session, "true")


async def test_a_terminal_has_a_size_that_changes(box: Sandbox) -> None:  # noqa: F811
    session = await box.open_session(["sh"], terminal=(24, 80))
    seen = b""
    async with box.session(session) as terminal:
        events = aiter(terminal.events())
        terminal.write_stdin(b"stty size\n")
        while b"24 80" not in seen:
            event = await anext(events)
            assert isinstance(event, OutputChunk)
            seen += event.data
        await box.resize_session(session, 50, 132)
        terminal.write_stdin(b"stty size; tty\n")
        while b"/dev/pts" not in seen:
            event = await anext(events)
            assert isinstance(event, OutputChunk)
            seen += event.data
        assert b"50 132" in seen
    again = b""
    async with box.session(session) as terminal:  # it lives on, and what it said can be heard again
        terminal.write_stdin(b"exit 3\n")
        async for event in terminal.events():
            if isinstance(event, CommandEnd):
                assert event.exit_code == 3
            else:
                again += event.data
    assert again.startswith(seen)
    with pytest.raises(FailedPrecondition, match="no terminal"):
        await box.resize_session(session, 1, 1)


async def test_interrupting_a_terminal_reaches_what_runs_in_it(box: Sandbox) -> None:  # noqa: F811
    nap = f"sleep 600.{os.getpid()}"  # a box without a fence sees the naps of others, too
    session = await box.open_session(["bash", "--norc"], terminal=(24, 80))
    async with box.session(session) as terminal:
        events = aiter(terminal.events())
        terminal.write_stdin(f"trap : INT; {nap}; echo st''atus $?\n".encode())
        seen = b""
        while nap.encode() not in seen:
            event = await anext(events)
            seen += getattr(event, "data", b"")
        while not (await box.exec(["pgrep", "-fx", nap])).ok:
            pass
        terminal.kill(2)
        while b"status 130" not in seen:
            event = await anext(events)
            seen += getattr(event, "data", b"")
    await box.close_session(session)


async def test_background_processes_have_logs(box: Sandbox) -> None:  # noqa: F811
    name = await box.start_process(sh("echo one; echo two >&2; read x; echo $x; exit 5"))
    async with box.process_logs(name, follow=True) as follower:
        events = aiter(follower.events())
        first = [await anext(events), await anext(events)]
        assert {event.stream for event in first if isinstance(event, OutputChunk)} == {"stdout", "stderr"}
        async with box.process_logs(name) as now:
            result = await now.result()
        assert (result.stdout, result.stderr, result.exit_code) == (b"one\n", b"two\n", None), "it runs yet"
        (process,) = [process for process in await box.processes() if process.id == name]
        assert (process.argv[0], process.end) == ("bash", None)
        follower.write_stdin(b"three\n")
        assert await anext(events) == OutputChunk("stdout", b"three\n", 4)
        end = await anext(events)
    assert isinstance(end, CommandEnd)
    assert end.exit_code == 5
    async with box.process_logs(name, stdout_offset=4) as rest:
        result = await rest.result()
    assert (result.stdout, result.exit_code) == (b"three\n", 5)
    with pytest.raises(NotFound, match="no 'p99'"):
        await box.process_logs("p99").result()


async def test_a_log_keeps_the_end_and_true_offsets(box: Sandbox) -> None:  # noqa: F811
    name = await box.start_process(sh("seq 200000; echo done >&2"), log_bytes=5000)
    async with box.process_logs(name, follow=True) as command:
        assert (await command.result()).ok
    whole = b"".join(b"%d\n" % number for number in range(1, 200001))
    async with box.process_logs(name) as command:
        chunks = [event async for event in command.events() if isinstance(event, OutputChunk)]
    kept = b"".join(chunk.data for chunk in chunks if chunk.stream == "stdout")
    assert chunks[0].offset == len(whole) - len(kept)
    assert whole.endswith(kept)
    assert 5000 <= len(kept) < 300_000


async def test_a_slow_reader_stops_the_writer_and_loses_nothing(box: Sandbox) -> None:  # noqa: F811
    """More than all buffers hold: the command waits until there is room."""
    size = 0
    async with box.start(sh("head -c 12M /dev/zero; echo end >&2"), max_output_bytes=1 << 30) as command:
        await asyncio.sleep(0.2)
        async for event in command.events():
            size += len(getattr(event, "data", b""))
    assert size == (12 << 20) + 4


async def test_a_pause_stops_the_clock_of_a_command(box: Sandbox) -> None:  # noqa: F811
    task = asyncio.create_task(box.exec(sh("echo up > started; sleep 0.4; echo made it"), timeout_s=1.0))
    while not (await box.exec(["test", "-s", "started"])).ok:
        pass
    await box.pause()
    await asyncio.sleep(1.2)
    await box.resume()
    result = await task
    assert (result.stdout, result.timed_out) == (b"made it\n", False)


async def test_a_timeout_reaches_what_detached_itself(box: Sandbox) -> None:  # noqa: F811
    script = "setsid sh -c 'echo $$ > pid; exec sleep 600' & wait"
    result = await box.exec(sh(script), timeout_s=0.5)
    assert result.timed_out
    pid = (await box.read_file("pid")).decode().strip()
    assert (
        await box.exec(
            sh(f"for i in $(seq 100); do kill -0 {pid} 2>/dev/null || exit 0; sleep 0.02; done; exit 1")
        )
    ).ok


async def test_trees_go_in_and_come_out(box: Sandbox) -> None:  # noqa: F811
    raw = tar_of(
        (member("bin/tool", mode=0o755), b"#!/bin/sh\necho ran\n"),
        (member("private", mode=0o700, kind=tarfile.DIRTYPE), b""),
        (member("private/" + "n" * 120, mode=0o600), os.urandom(300_000)),
        (member("./empty", mode=0o640), b""),
    )
    await box.write_file("up/bin/tool", b"older", mode=0o600)
    summary = await box.upload("up", cut(raw, 7777))
    assert (summary.files, summary.bytes) == (3, 300_019)
    assert (await box.exec(["up/bin/tool"])).stdout == b"ran\n"
    await box.exec(sh("ln -s tool up/bin/link; ln up/bin/tool up/bin/tool2"))
    async with aclosing(box.download("up")) as blocks:
        data = b"".join([block async for block in blocks])
    await box.upload("again", cut(data, 9999))
    same = await box.exec(sh("diff -r --no-dereference up again && test again/bin/tool2 -ef again/bin/link"))
    assert same.ok, same
    with tarfile.open(fileobj=io.BytesIO(data)) as out, tarfile.open(fileobj=io.BytesIO(raw)) as given:
        found = {info.name: info for info in out}
        assert found["bin/link"].linkname == "tool"
        for info in given:
            same = found[info.name.removeprefix("./")]
            assert (same.mode, same.size, same.type) == (info.mode, info.size, info.type)
            if info.isreg():
                assert out.extractfile(same).read() == given.extractfile(info).read()  # type: ignore[union-attr]
    async with aclosing(box.download("up/bin/tool")) as blocks:
        one = b"".join([block async for block in blocks])
    with tarfile.open(fileobj=io.BytesIO(one)) as out:
        assert out.getnames() == ["tool"]
    with pytest.raises(NotFound):
        await anext(box.download("nowhere"))


@pytest.mark.parametrize(
    ("bad", "why"),
    [
        (member("../out"), "leads out"),
        (member("a/../../out"), "leads out"),
        (member("/etc/out"), "leads out"),
        (member("link", kind=tarfile.SYMTYPE, link="/etc"), "a symbolic link"),
        (member("link", kind=tarfile.SYMTYPE, link="there/x"), "leads out"),
        (member("hard", kind=tarfile.LNKTYPE, link="there/x"), "passes through 'there'"),
        (member("hard", kind=tarfile.LNKTYPE, link="later"), "a hard link"),
        (member("disk", kind=tarfile.BLKTYPE), "a device"),
        (member("fifo", kind=tarfile.FIFOTYPE), "a pipe"),
        (member("there/owned"), "passes through 'there'"),
    ],
)
async def test_no_member_of_a_tree_leads_out(box: Sandbox, bad: tarfile.TarInfo, why: str) -> None:  # noqa: F811
    await box.exec(sh("mkdir up ~/outside; ln -s ~/outside up/there"))
    raw = tar_of((member("good"), b"good"), (bad, b"x" if bad.isreg() else b""), (member("later"), b"later"))
    with pytest.raises(InvalidArgument, match=why) as caught:
        await box.upload("up", cut(raw, 512))
    assert repr(bad.name) in str(caught.value)
    left = await box.exec(sh("find up ! -type d | sort; ls -A ~/outside; ls out ../out /etc/out 2>/dev/null"))
    assert left.stdout == b"up/good\nup/there\n"


async def test_a_tree_that_is_cut_off_is_not_taken_for_whole(box: Sandbox) -> None:  # noqa: F811
    raw = tar_of((member("a"), b"a" * 5000), (member("b"), b"b" * 5000))
    for size in (0, 700, 5632, 6144, 7000):
        with pytest.raises(InvalidArgument, match=r"ended|can be unpacked"):
            await box.upload("up", cut(raw[:size], 512))
    with pytest.raises(InvalidArgument, match="can be unpacked"):
        await box.upload("up", cut(b"this is no tar stream" * 100, 512))


async def test_changes_of_files_are_told(box: Sandbox) -> None:  # noqa: F811
    await box.exec(["mkdir", "-p", "w/old"])
    seen = []
    async with aclosing(box.watch_files("w", recursive=True)) as changes:
        assert await anext(changes) is None
        await box.exec(sh("echo 1 > w/a; mkdir w/new; mv w/a w/new/b; rm w/new/b; echo 2 > w/old/end"))
        async for change in changes:
            seen.append(change)
            if change == FileChange("old/end", "modified"):
                break
    assert FileChange("a", "created") in seen
    assert FileChange("a", "deleted") in seen
    assert FileChange("new", "created") in seen
    with pytest.raises(NotFound):
        await anext(box.watch_files("nowhere"))
    with pytest.raises(InvalidArgument):
        await anext(box.watch_files("/etc"))


async def test_big_files_pass_in_blocks(box: Sandbox) -> None:  # noqa: F811
    block = os.urandom(1 << 20)

    async def blocks() -> AsyncIterator[bytes]:
        for _ in range(24):
            yield block

    await box.write_stream("big", blocks(), mode=0o600)
    assert (await box.stat("big")).size == 24 << 20
    at = 0
    async with aclosing(box.read_stream("big", offset=5)) as stream:
        async for part in stream:
            place = (at + 5) % (1 << 20)
            assert part == (block + block)[place : place + len(part)]
            at += len(part)
    assert at == (24 << 20) - 5
    async with aclosing(box.read_stream("big")) as stream:
        await anext(stream)  # and no more: the rest is not sent for nothing
    assert await box.read_range("big", offset=(24 << 20) - 3, length=10) == block[-3:]


async def test_a_write_that_is_refused_stops(box: Sandbox) -> None:  # noqa: F811
    async def blocks() -> AsyncIterator[bytes]:
        while True:
            yield b"\0" * (1 << 20)

    with pytest.raises(InvalidArgument, match="folder"):
        await box.write_stream(".", blocks())


async def test_output_for_a_key_is_bounded(box: Sandbox) -> None:  # noqa: F811
    with pytest.raises(InvalidArgument, match="limited to"):
        await box.exec(["true"], key="k", max_output_bytes=1 << 30)


async def test_a_process_takes_a_signal_as_soon_as_it_is_known(box: Sandbox) -> None:  # noqa: F811
    for _ in range(60):
        process = await box.start_process(["sleep", "600"])
        await box.signal_process(process, 15)
        async with box.process_logs(process, follow=True) as logs:
            assert (await logs.result()).signal == 15
