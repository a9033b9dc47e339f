"""The client of sandboxes against a real server: commands, leases, files, watching, and what a broken connection costs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing
from pathlib import Path

import pytest
import transports
from cut_relay import Relay

from rock_env.client import Client, Credentials
from rock_env.errors import (
    FailedPrecondition,
    InvalidArgument,
    NotFound,
    ResourceExhausted,
    SandboxLost,
    Unavailable,
)
from rock_env.lifecycle import SandboxState
from rock_env.local import EmbeddedServer
from rock_env.snapshots import SnapshotState
from rock_env.spec import SandboxSpec

pytestmark = pytest.mark.any_address

PLAIN = Credentials()


@pytest.fixture(scope="module")
def server() -> Iterator[EmbeddedServer]:
    with transports.served(["--isolation=none"]) as started:
        yield started


@pytest.fixture
async def client(server: EmbeddedServer) -> AsyncIterator[Client]:
    async with Client(server.address, credentials=PLAIN) as opened:
        yield opened


@pytest.fixture
async def relay(tmp_path: Path, server: EmbeddedServer) -> AsyncIterator[Relay]:
    async with Relay(tmp_path, server.address).open() as opened:
        yield opened


# -- commands


async def test_a_command_is_told_truthfully(client: Client) -> None:
    async with await client.sandboxes.create(spec=SandboxSpec(env=(("A", "box"),))) as box:
        done = await box.exec(
            ["sh", "-c", "echo $A $B; cat; echo bad >&2; exit 3"], stdin=b"in", env={"B": "b"}
        )
        assert (done.exit_code, done.signal, done.stdout, done.stderr) == (3, None, b"box b\nin", b"bad\n")
        assert not done.ok
        killed = await box.exec(["sh", "-c", "kill -TERM $$"])
        assert (killed.exit_code, killed.signal) == (None, 15)
        late = await box.exec(["sleep", "600"], timeout_s=0.05)
        assert late.timed_out
        cut = await box.exec(["sh", "-c", "echo 123456"], max_output_bytes=3)
        assert (cut.stdout, cut.truncated) == (b"123", True)
        assert (await box.exec(["pwd"], cwd="/")).stdout == b"/\n"
        with pytest.raises(InvalidArgument, match="'sh', '-c', 'ls'"):
            await box.exec("ls")
        for nothing in (box.exec, box.start_process):
            with pytest.raises(InvalidArgument, match="argv is empty"):
                await nothing([])
        with pytest.raises(InvalidArgument, match=r"bad env .*: expected text for text, got 1"):
            await box.exec(["true"], env={"A": 1})  # type: ignore[dict-item]
        with pytest.raises(InvalidArgument, match=r"bad labels .*: expected text for text, got 3"):
            await client.sandboxes.create(labels={"step": 3})  # type: ignore[dict-item]
        lost = await box.exec(["pwd"], cwd="/nowhere")
        assert lost.stderr == b"cannot run 'pwd' in '/nowhere': No such file or directory\n"
        assert lost.exit_code == 127
        lost = await box.exec(["nowhere"], cwd="/")
        assert lost.stderr == b"cannot run 'nowhere': No such file or directory\n"
    with pytest.raises(NotFound):
        await box.exec(["true"])


async def test_a_running_command_takes_input_and_signals(client: Client) -> None:
    async with await client.sandboxes.create() as box:
        script = "trap 'echo caught; exit 7' INT; read line; echo got $line; while :; do sleep 0.01; done"
        async with box.start(["sh", "-c", script]) as command:
            await command.write(b"hello\n")
            said = b""
            async with aclosing(command.output()) as output:
                async for chunk in output:
                    assert (chunk.stream, chunk.offset) == ("stdout", len(said))
                    said += chunk.data
                    if said == b"got hello\n":
                        await command.signal(2)
            assert said == b"got hello\ncaught\n"
            end = await command.wait()
            assert (end.exit_code, end.stdout) == (7, b"")
            with pytest.raises(InvalidArgument, match="1 to 64"):
                await command.signal(0)
        async with box.start(["cat"]) as closed:
            await closed.close_stdin()
            await closed.close_stdin()
            with pytest.raises(FailedPrecondition, match="was closed"):
                await closed.write(b"more")
        for resumable in (True, False):
            async with box.start(["cat"], stdin=False, resumable=resumable) as empty:
                assert (await empty.wait()).exit_code == 0
                with pytest.raises(FailedPrecondition, match="was closed"):
                    await empty.write(b"more")


async def test_leaving_a_command_ends_it(client: Client) -> None:
    async with await client.sandboxes.create() as box:
        script = "echo $$; exec sleep 600"
        async with box.start(["sh", "-c", script]) as command, aclosing(command.output()) as output:
            pid = (await anext(output)).data.decode().strip()
        gone = f"while kill -0 {pid} 2>/dev/null; do sleep 0.01; done; echo gone"
        assert (await box.exec(["sh", "-c", gone])).stdout == b"gone\n"


# -- leases


async def test_a_lease_renews_itself_until_the_end(client: Client) -> None:
    async with await client.sandboxes.create(lease_s=0.6) as box:
        first = box.info.lease_expires_at
        async with aclosing(client.sandboxes.watch(after_revision=box.info.revision)) as changes:
            async for change in changes:
                if change.id == box.id and (change.lease_expires_at or 0) > (first or 0) + 0.6:
                    break
        assert (await box.refresh()).state is SandboxState.RUNNING
    assert (await client.sandboxes.get(box.id)).reason == "deleted by its user"
    async with await client.sandboxes.create(lease_s=None) as unleased:
        assert unleased.info.lease_expires_at is None


@pytest.mark.own_server  # its lease of 0.3 s is shorter than a call takes through a busy proxy
async def test_a_lost_sandbox_is_told_and_refuses_calls(client: Client) -> None:
    async with await client.sandboxes.create(lease_s=0.3) as box:
        async with await client.sandboxes.attach(box.id) as other:
            await other.delete()
        lost = await box.lost()
        assert isinstance(lost, SandboxLost)
        assert "deleted by its user" in str(lost)
        with pytest.raises(SandboxLost, match=box.id):
            await box.exec(["true"])


async def test_what_is_let_go_ends_with_its_lease(client: Client) -> None:
    box = await client.sandboxes.create(lease_s=0.2)
    box.let_go()
    async with aclosing(client.sandboxes.watch(after_revision=box.info.revision)) as changes:
        async for change in changes:
            if change.id == box.id and change.state is SandboxState.DELETED:
                assert change.reason == "its lease expired"
                return


async def test_an_attached_sandbox_outlives_the_block(client: Client) -> None:
    async with await client.sandboxes.create(labels={"test": "attach"}) as box:
        async with await client.sandboxes.attach(box.id, lease_s=500) as attached:
            assert attached.info.lease_expires_at is not None
            assert (await attached.pause()).state is SandboxState.PAUSED
            assert (await attached.resume()).state is SandboxState.RUNNING
        assert [info.id for info in await client.sandboxes.list(labels={"test": "attach"})] == [box.id]
    assert await client.sandboxes.list(labels={"test": "attach"}) == []
    gone = await client.sandboxes.list(labels={"test": "attach"}, states=[SandboxState.DELETED])
    assert [info.id for info in gone] == [box.id]
    await box.delete()
    with pytest.raises(NotFound, match="sb-none"):
        await client.sandboxes.attach("sb-none")


# -- files


async def test_files_are_written_read_and_described(client: Client) -> None:
    async with await client.sandboxes.create() as box:
        content = bytes(range(256)) * 10_000
        steps: list[int] = []
        written = await box.files.write("a/b", content, mode=0o750, progress=steps.append)
        assert (written.size, written.mode, written.directory) == (len(content), 0o750, False)
        assert steps == [1 << 20, 2 << 20, len(content)]
        assert await box.files.read("a/b") == content
        assert await box.files.read("a/b", offset=1_500_000, length=1_000_001) == content[1_500_000:2_500_001]
        assert await box.files.read("a/b", length=0) == b""
        assert [(one.path, one.directory) for one in await box.files.list(recursive=True)] == [
            ("a", True),
            ("a/b", False),
        ]
        assert await box.files.exists("a/b")
        assert not await box.files.exists("a/c")
        with pytest.raises(NotFound):
            await box.files.read("a/c")
        with pytest.raises(InvalidArgument):
            await box.files.write("/etc/passwd", b"")


# -- the checkpoint tree


async def test_forks_and_restores_have_the_files_of_their_moment(client: Client) -> None:
    async with await client.sandboxes.create(labels={"test": "tree"}) as box:
        await box.files.write("file", b"one")
        first = await box.snapshot(labels={"turn": "1"})
        assert (first.sandbox_id, first.labels) == (box.id, {"turn": "1"})
        await box.files.write("file", b"two")
        forks = await box.fork(2)
        assert [await fork.files.read("file") for fork in forks] == [b"two", b"two"]
        assert [dict(fork.info.labels) for fork in forks] == [{"test": "tree"}] * 2
        assert all(fork.info.lease_expires_at for fork in forks)
        await forks[0].files.write("file", b"three")
        assert await box.files.read("file") == b"two"
        assert (await box.restore(first.id)).snapshot_id == first.id
        assert await box.files.read("file") == b"one"
        async with await client.sandboxes.create(snapshot=first.id) as started:
            assert await started.files.read("file") == b"one"
        assert [known.id for known in await client.sandboxes.snapshots(labels={"turn": "1"})] == [first.id]
        for fork in forks:
            await fork.delete()
        await client.sandboxes.delete_snapshot(first.id)
        assert (await client.sandboxes.get_snapshot(first.id)).state is SnapshotState.DELETED
        assert await client.sandboxes.snapshots(labels={"turn": "1"}) == []


# -- broken connections


async def test_calls_survive_a_cut_connection_and_repeat_nothing(relay: Relay, client: Client) -> None:
    async with Client(relay.address, credentials=PLAIN) as cut:
        await cut.sandboxes.list()
        making = [asyncio.create_task(cut.sandboxes.create(labels={"test": "cut"})) for _ in range(5)]
        await asyncio.sleep(0.005)
        relay.cut()
        boxes = await asyncio.gather(*making)
        found = await client.sandboxes.list(labels={"test": "cut"})
        assert {info.id for info in found} == {box.id for box in boxes}
        assert len(found) == 5
        for box in boxes:
            await box.delete()
        assert relay.connections >= 2


async def test_a_watch_goes_on_after_a_cut(relay: Relay, client: Client) -> None:
    async with (
        Client(relay.address, credentials=PLAIN) as cut,
        aclosing(cut.sandboxes.watch(labels={"test": "watch"})) as changes,
    ):
        following = asyncio.create_task(anext(changes))
        async with await client.sandboxes.create(labels={"test": "watch"}) as box:
            seen = [await following]
            relay.cut()
            while seen[-1].state is not SandboxState.RUNNING:
                seen.append(await anext(changes))
            relay.cut()
        while seen[-1].state is not SandboxState.DELETED:
            seen.append(await anext(changes))
    assert {info.id for info in seen} == {box.id}
    revisions = [info.revision for info in seen]
    assert revisions == sorted(set(revisions))


async def test_a_command_goes_on_over_cut_connections(relay: Relay) -> None:
    script = "echo ran >> runs; i=0; while read line; do i=$((i+1)); echo $i:$line; echo e$i >&2; done; wc -l < runs; exit 5"
    async with Client(relay.address, credentials=PLAIN) as cut, await cut.sandboxes.create() as box:
        out, err = b"", b""
        async with box.start(["sh", "-c", script]) as command, aclosing(command.output()) as output:
            await command.write(b"a\n")
            async for chunk in output:
                if chunk.stream == "stdout":
                    assert chunk.offset == len(out), "nothing twice, nothing left out"
                    out += chunk.data
                else:
                    err += chunk.data
                lines = out.count(b"\n")
                if chunk.stream == "stdout" and lines < 4:
                    relay.cut()
                    await command.write(b"%d\n" % lines)
                elif lines == 4:
                    relay.cut()
                    await command.close_stdin()
        assert out == b"1:a\n2:1\n3:2\n4:3\n1\n"
        assert sorted(err.split()) == [b"e1", b"e2", b"e3", b"e4"]
        assert (await command.wait()).exit_code == 5
        assert relay.connections >= 5


async def test_a_server_that_stays_away_is_unavailable(relay: Relay) -> None:
    async with Client(relay.address, credentials=PLAIN, retry_for_s=0.3) as cut:
        box = await cut.sandboxes.create(lease_s=600)
        relay.refusing = True
        relay.cut()
        with pytest.raises(Unavailable, match="not available"):
            await box.exec(["true"])
        with pytest.raises(Unavailable, match="not available"):
            await cut.sandboxes.list()


async def test_patience_waits_for_capacity(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    refusals = [
        ResourceExhausted("full", retry_after_s=0.01),
        ResourceExhausted("still full", retry_after_s=0.01),
    ]
    unary = client.sandboxes.calls.unary
    asked: list[str] = []

    async def full(rpc: str, request: object, **options: object) -> object:
        if rpc == "Create":
            asked.append(request.idempotency_key)  # type: ignore[attr-defined]
            if len(asked) <= len(refusals):
                raise refusals[len(asked) - 1]
        return await unary(rpc, request, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(client.sandboxes.calls, "unary", full)
    with pytest.raises(ResourceExhausted, match="full"):
        await client.sandboxes.create()
    asked.clear()
    async with await client.sandboxes.create(wait_s=10.0):
        assert len(asked) == 3
        assert len(set(asked)) == 1


# -- processes and sessions


async def test_a_background_process_runs_on_and_keeps_its_log(relay: Relay) -> None:
    async with Client(relay.address, credentials=PLAIN) as cut, await cut.sandboxes.create() as box:
        process = await box.start_process(
            ["sh", "-c", "echo up; while ! test -f go; do sleep 0.01; done; exit 4"]
        )
        (known,) = await box.processes()
        assert (known.id, known.end, known.argv[0]) == (process.id, None, "sh")
        async with aclosing(process.logs(follow=True)) as log:
            first = await anext(log)
        assert (first.stream, first.offset, first.data) == ("stdout", 0, b"up\n")
        assert [chunk.data async for chunk in process.logs()] == [b"up\n"]
        relay.cut()
        await box.files.write("go", b"")
        end = await box.process(process.id.partition("/")[2]).wait()
        assert (end.exit_code, end.stdout) == (4, b"up\n")
        again = await box.start_process(["sleep", "600"])
        await again.signal(15)
        assert (await again.wait()).signal == 15
        with pytest.raises(NotFound):
            await box.process("p99").wait()


async def test_a_shell_keeps_its_state(relay: Relay) -> None:
    async with (
        Client(relay.address, credentials=PLAIN) as cut,
        await cut.sandboxes.create() as box,
        await box.shell(env={"A": "1"}) as shell,
    ):
        assert (await shell.run("mkdir -p d; cd d; f() { echo f$1 >&2; return 3; }; B=$A")).exit_code == 0
        relay.cut()
        done = await shell.run("basename $(pwd); f $B")
        assert (done.exit_code, done.stdout, done.stderr) == (3, b"d\n", b"f1\n")
        late = await shell.run("sleep 600", timeout_s=0.05)
        assert late.timed_out
        async with (
            shell.start("trap 'echo int' INT; sh -c 'echo on; exec sleep 600'") as command,
            aclosing(command.output()) as output,
        ):
            assert (await anext(output)).data == b"on\n"
            await command.signal(2)
            assert not (await command.wait()).timed_out
        assert (await shell.run("echo still here")).stdout == b"still here\n"


async def test_a_terminal_is_one(relay: Relay) -> None:
    async with Client(relay.address, credentials=PLAIN) as cut, await cut.sandboxes.create() as box:
        terminal = await box.pty(["sh"], rows=20, columns=70, env={"PS1": ""})
        async with terminal, aclosing(terminal.output()) as output:
            seen = b""

            async def until(text: bytes) -> None:
                nonlocal seen
                while text not in seen:
                    seen += (await anext(output)).data

            await terminal.write(b"stty size; test -t 0 && echo is-a-''tty\n")
            await until(b"20 70")
            await until(b"is-a-tty")
            relay.cut()
            await cut.sandboxes.list()
            await terminal.resize(30, 90)
            await terminal.write(b"stty size; exit 6\n")
            await until(b"30 90")
            assert (await terminal.wait()).exit_code == 6


# -- trees


async def test_trees_go_up_and_come_down(client: Client, tmp_path: Path) -> None:
    source = tmp_path / "source"
    (source / "sub").mkdir(parents=True)
    (source / "run").write_bytes(b"#!/bin/sh\n")
    (source / "run").chmod(0o751)
    big = bytes(range(256)) * 12_000
    (source / "sub" / "big").write_bytes(big)
    steps: list[int] = []
    async with await client.sandboxes.create() as box:
        sent = await box.files.upload(source, "there/it/is", progress=steps.append)
        assert (sent.files, sent.bytes) == (2, len(big) + 10)
        assert steps == sorted(steps)
        assert steps[-1] >= len(big)
        assert (await box.files.stat("there/it/is/run")).mode == 0o751
        assert (await box.exec(["ln", "-s", "run", "there/it/is/link"])).ok
        got = await box.files.download("there/it/is", tmp_path / "back")
        assert (got.files, got.bytes) == (2, len(big) + 10)
        assert (tmp_path / "back" / "sub" / "big").read_bytes() == big
        assert (tmp_path / "back" / "run").stat().st_mode & 0o777 == 0o751
        assert (tmp_path / "back" / "link").readlink() == Path("run")
        await box.files.upload(source / "run", "single")
        one = await box.files.download("single", tmp_path / "one")
        assert (one.files, (tmp_path / "one").read_bytes()) == (1, b"#!/bin/sh\n")
        assert (tmp_path / "one").stat().st_mode & 0o777 == 0o751
        assert (await box.exec(["ln", "-s", "/etc", "there/it/is/out"])).ok
        with pytest.raises(InvalidArgument, match="'out'"):
            await box.files.download("there/it/is", tmp_path / "refused")
        with pytest.raises(NotFound):
            await box.files.download("nowhere", tmp_path / "nothing")
        (source / "sub" / "link").symlink_to("../run")
        (source / "sub" / "same").hardlink_to(source / "sub" / "big")
        await box.files.upload(source, "again")
        linked = await box.exec(["sh", "-c", "again/sub/link && test again/sub/same -ef again/sub/big"])
        assert linked.ok
        (source / "out").symlink_to("/etc")
        with pytest.raises(InvalidArgument, match="'out'"):
            await box.files.upload(source, "again")
        with pytest.raises(FileNotFoundError, match="absent"):
            await box.files.upload(tmp_path / "absent", "absent")
        assert not await box.files.exists("absent")


async def test_an_append_happens_once_and_changes_are_watched(relay: Relay) -> None:
    async with Client(relay.address, credentials=PLAIN) as cut, await cut.sandboxes.create() as box:
        await box.files.write("log", b"")
        async with box.files.watch(".") as watch, aclosing(watch.changes()) as changes:
            for line in range(5):
                appending = asyncio.create_task(box.files.append("log", b"%d\n" % line))
                await asyncio.sleep(0.001 * line)
                if line == 4:
                    relay.cut()
                await appending
            while (await anext(changes)).kind != "overflow":
                pass  # what arrived before the cut
            await box.files.write("new", b"")
            while (await anext(changes)).path != "new":
                pass
        assert await box.files.read("log") == b"0\n1\n2\n3\n4\n"
