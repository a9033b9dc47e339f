"""The guest's socket: who may connect, what a lost connection ends, what comes back over the next one."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import psutil
import pytest
from bare_guest import BareGuest, bare_guest

from rock_env.backends.docker.ready import ReadySignal
from rock_env.errors import FailedPrecondition, InfraError, InvalidArgument, NotFound, Unavailable
from rock_env.guest import protocol
from rock_env.guest_host.code import lay_out_guest
from rock_env.guest_host.link import GuestLink
from rock_env.sandbox import CommandEnd, OutputChunk


@pytest.fixture(params=["unix", "tcp"])
async def guest(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[BareGuest]:
    async with bare_guest(tmp_path, network=request.param == "tcp") as made:
        yield made


async def test_only_the_first_token_opens(guest: BareGuest) -> None:
    link = await guest.configured()
    for token in (b"x" * 32, b"", b"y" * 33, b"z" * 1000):
        with pytest.raises(InfraError):
            await guest.connect(token)
    assert (await guest.box(link).exec(["echo", "still here"])).stdout == b"still here\n"


async def test_a_stranger_gets_nothing_and_keeps_nobody_out(guest: BareGuest) -> None:
    link = await guest.configured()
    strangers = [guest.stranger() for _ in range(20)]
    strangers[0].close()
    strangers[-1].sendall(protocol.HEADER.pack(protocol.EXEC, 1, 5) + b"abcde")
    again = await guest.connect()
    assert (await guest.box(again).exec(["true"])).ok
    assert "ended" in await link.lost, "a newer connection replaces the older"
    for sock in strangers:
        sock.close()


async def test_nothing_is_served_before_the_box_is_configured(guest: BareGuest) -> None:
    link = await guest.connect()
    with pytest.raises(FailedPrecondition, match="configured"):
        await guest.box(link).read_file("x")
    await link.close()
    assert await guest.ended() == 0


async def test_a_box_is_configured_once(guest: BareGuest) -> None:
    link = await guest.configured()
    with pytest.raises(FailedPrecondition, match="already"):
        await link.configure({})


async def test_without_lingering_the_box_ends_with_its_connection(guest: BareGuest) -> None:
    link = await guest.configured(linger_s=0.0)
    box = guest.box(link)
    await box.start_process(["sleep", "600"])
    (process,) = await box.processes()
    await link.close(end=False)
    assert await guest.ended() == 0
    assert not psutil.pid_exists(process.pid)


async def test_a_box_lingers_as_long_as_told(guest: BareGuest) -> None:
    link = await guest.configured(linger_s=0.3)
    await link.close(end=False)
    link = await guest.connect()
    assert (await guest.box(link).exec(["sleep", "0.6"])).ok, "a server that came in time keeps it"
    await link.close(end=False)
    assert await guest.ended() == 0


@pytest.mark.parametrize("what", ["lease", "deadline"])
async def test_the_box_ends_by_itself_with_nobody_there(guest: BareGuest, what: str) -> None:
    link = await guest.configured(deadline_s=0.3 if what == "deadline" else None)
    if what == "lease":
        await link.lease(60)
        await link.lease(0.3)
    box = guest.box(link)
    await box.start_process(["sleep", "600"])
    (process,) = await box.processes()
    await link.close(end=False)
    assert await guest.ended() == 0
    assert not psutil.pid_exists(process.pid)


async def test_a_renewed_lease_moves_the_end(guest: BareGuest) -> None:
    link = await guest.configured()
    await link.lease(0.2)
    await link.lease(600)
    assert (await guest.box(link).exec(["sleep", "0.5"])).ok


async def test_output_goes_on_where_the_connection_broke(guest: BareGuest) -> None:
    """Far more output than any window, cut off in its midst: what comes after has no gap and no repetition."""
    link = await guest.configured()
    argv = ["sh", "-c", "seq 1 400000; echo done >&2"]
    seen = bytearray()
    async with guest.box(link).start(argv, key="k", max_output_bytes=16 << 20) as command:
        async for event in command.events():
            assert isinstance(event, OutputChunk)
            seen += event.data
            if len(seen) > 300_000:
                break
        await link.close(end=False)
    again = guest.box(await guest.connect())
    end = None
    async with again.start([], key="k", stdout_offset=len(seen)) as command:
        async for event in command.events():
            if isinstance(event, CommandEnd):
                end = event
            elif event.stream == "stdout":
                assert event.offset == len(seen)
                seen += event.data
    assert bytes(seen) == b"".join(b"%d\n" % number for number in range(1, 400001))
    assert end is not None
    assert (end.exit_code, end.truncated) == (0, False)


async def test_a_key_runs_once_also_over_another_connection(guest: BareGuest) -> None:
    link = await guest.configured()
    box = guest.box(link)
    argv = ["sh", "-c", "echo ran >> count; sleep 0.3; echo said; exit 3"]
    task = asyncio.create_task(box.exec(argv, key="once"))
    while not (await box.exec(["test", "-s", "count"])).ok:
        pass
    at_once = asyncio.create_task(box.exec(argv, key="once"))
    assert (await at_once).stdout == (await task).stdout == b"said\n"
    await link.close(end=False)
    again = guest.box(await guest.connect())
    result = await again.exec(argv, key="once")
    assert (result.exit_code, result.stdout) == (3, b"said\n")
    assert await again.read_file("count") == b"ran\n"
    with pytest.raises(FailedPrecondition, match="another command"):
        await again.exec(["true"], key="once")
    with pytest.raises(NotFound, match="no command with the key"):
        await again.start([], key="never used").result()


async def test_results_are_forgotten_but_not_run_again(guest: BareGuest) -> None:
    box = guest.box(await guest.configured())
    for number in range(300):
        assert (await box.exec(["true"], key=f"k{number}")).ok
    assert (await box.exec(["true"], key="k299")).ok
    with pytest.raises(FailedPrecondition, match="not kept any more"):
        await box.exec(["true"], key="k0")


async def test_a_command_without_a_key_ends_with_its_caller(guest: BareGuest) -> None:
    link = await guest.configured()
    task = asyncio.create_task(guest.box(link).exec(["sh", "-c", "echo $$ > pid; exec sleep 600"]))
    while not (await guest.box(link).exec(["test", "-s", "pid"])).ok:
        pass
    pid = int(await guest.box(link).read_file("pid"))
    await link.close(end=False)
    with pytest.raises(Unavailable):
        await task
    again = guest.box(await guest.connect())
    assert (await again.exec(["sh", "-c", f"while kill -0 {pid} 2>/dev/null; do sleep 0.01; done"])).ok


async def test_input_is_taken_once(guest: BareGuest) -> None:
    """A caller that comes back writes its input from the start; what had arrived is skipped."""
    link = await guest.configured()
    data = bytes(range(256)) * 20_000
    async with guest.box(link).start(["sh", "-c", "cat > got; echo end"], key="k") as command:
        command.write_stdin(data[: 1 << 20])
        got = guest.folder / "work" / "got"
        while not got.exists() or got.stat().st_size < 1 << 19:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        await link.close(end=False)
    again = guest.box(await guest.connect())
    assert (await again.exec(["sh", "-c", "cat > got; echo end"], key="k", stdin=data)).stdout == b"end\n"
    assert await again.read_file("got") == data


async def test_an_append_is_done_once(guest: BareGuest) -> None:
    link = await guest.configured()
    await guest.box(link).write_file("log", b"one\n", append=True, key="k")
    await link.close(end=False)
    again = guest.box(await guest.connect())
    await again.write_file("log", b"one\n", append=True, key="k")
    await again.write_file("log", b"two\n", append=True)
    assert await again.read_file("log") == b"one\ntwo\n"
    with pytest.raises(FailedPrecondition, match="another write"):
        await again.write_file("other", b"", append=True, key="k")


async def test_two_callers_with_one_key_write_once(guest: BareGuest) -> None:
    """One was cut off and does not know it; its retry is under way at the same time."""
    box = guest.box(await guest.configured())
    argv = ["sh", "-c", "cat > got; echo end"]
    async with box.start(argv, key="k") as first, box.start(argv, key="k") as second:
        for command in (first, second):
            command.write_stdin(b"the same input")
            command.close_stdin()
        assert (await first.result()).stdout == (await second.result()).stdout == b"end\n"
    assert await box.read_file("got") == b"the same input"
    both = asyncio.Barrier(2)

    async def blocks() -> AsyncIterator[bytes]:
        yield b"the same "
        await both.wait()
        yield b"line\n"

    await asyncio.gather(*(box.write_stream("log", blocks(), append=True, key="a") for _ in range(2)))
    assert await box.read_file("log") == b"the same line\n"


async def test_half_a_file_is_no_file(guest: BareGuest) -> None:
    link = await guest.configured()
    box = guest.box(link)
    await box.write_file("kept", b"before")

    async def blocks() -> AsyncIterator[bytes]:
        yield b"x" * (1 << 20)
        await link.close(end=False)
        yield b"y"

    with pytest.raises(Unavailable):
        await box.write_stream("kept", blocks())
    again = guest.box(await guest.connect())
    assert await again.read_file("kept") == b"before"
    assert [entry.path for entry in await again.list_files(".")] == ["kept"], "nor is a part of it left"


async def test_processes_and_sessions_outlive_the_connection(guest: BareGuest) -> None:
    link = await guest.configured()
    box = guest.box(link)
    process = await box.start_process(["sh", "-c", "while read line; do echo got $line; done"], key="p")
    assert (
        await box.start_process(["sh", "-c", "while read line; do echo got $line; done"], key="p") == process
    )
    session = await box.open_session(key="s")
    async with box.session_command(session, "cd /tmp; x=5") as command:
        assert (await command.result()).ok
    await link.close(end=False)
    again = guest.box(await guest.connect())
    assert await again.open_session(key="s") == session
    async with again.session_command(session, "echo $PWD $x") as command:
        assert (await command.result()).stdout == b"/tmp 5\n"
    async with again.process_logs(process, follow=True) as logs:
        events = aiter(logs.events())
        logs.write_stdin(b"that\n")
        assert await anext(events) == OutputChunk("stdout", b"got that\n")
        await again.signal_process(process, 15)
        end = await anext(events)
    assert isinstance(end, CommandEnd)
    assert end.signal == 15


async def died(process: asyncio.subprocess.Process) -> str:
    return f"it ended with status {await process.wait()}"


async def test_a_guest_started_in_a_folder_says_when_it_is_ready(tmp_path: Path) -> None:
    """Where no socket can be handed in, the guest binds one and opens the FIFO beside it; nobody polls."""
    start = lay_out_guest(tmp_path / "code")
    os.mkfifo(tmp_path / "ready")
    path = str(tmp_path / "guest.sock")
    with ReadySignal(tmp_path / "ready") as ready:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-I", "-S", str(start), "--listen-path", path
        )
        await ready.wait(died=died(process))
    link = await GuestLink.connect(tmp_path / "guest.sock", token=b"t" * 32)
    await link.close()
    assert await process.wait() == 0


async def test_connecting_to_nobody_says_so(tmp_path: Path) -> None:
    with pytest.raises(InfraError, match="cannot connect"):
        await GuestLink.connect(tmp_path / "nobody.sock", token=b"t" * 32)


async def test_a_terminal_is_refused_what_only_a_shell_takes(guest: BareGuest) -> None:
    box = guest.box(await guest.configured())
    session = await box.open_session(terminal=(24, 80))
    with pytest.raises(NotFound, match="terminal; write to it"):
        await box.session_command(session, "true").result()
    with pytest.raises(InvalidArgument, match="rows"):
        await box.resize_session(session, 0, 5)
    with pytest.raises(NotFound):
        await box.close_session("s99")
