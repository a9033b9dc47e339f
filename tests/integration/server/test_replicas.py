"""Real servers that share a real PostgreSQL: forwarding, takeover after a kill, hand-over on a drain, fencing."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import signal
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any

import grpc
import pytest
from google.protobuf.duration_pb2 import Duration
from integration.replica_fleet import LEASE_S, Fleet, Server, refusal, run, running_fleet, start_of
from lost_calls import lost
from waiting import until

from rock_env.proto.v1 import admin_pb2
from rock_env.proto.v1 import sandbox_pb2 as pb
from rock_env.security.auth import new_token
from rock_env.security.token_file import add_token, revoke_token
from rock_env.server.replicas.trust.passes import HEADER, Admitted, Passes

RUNNING, DELETED = pb.SANDBOX_STATE_RUNNING, pb.SANDBOX_STATE_DELETED
EXEC = "/rock.v1.SandboxService/Exec"


@pytest.fixture
async def fleet(new_database: Callable[[], str]) -> AsyncIterator[Fleet]:
    async with running_fleet(new_database()) as made:
        yield made


async def end_of(watch: Any) -> tuple[str, str, dict[str, Any]]:
    """Read a watch to its end, which is always an error."""

    async def drain() -> None:
        while await watch.read() is not grpc.aio.EOF:
            pass

    return await refusal(drain())


async def persisting(act: Callable[[], Awaitable[Any]], *, for_s: float = 60.0) -> Any:
    """Do what a client does: ask again, with the same key, when a server was not available."""
    give_up_at = time.monotonic() + for_s
    while True:
        try:
            return await act()
        except (grpc.aio.AioRpcError, ConnectionError) as error:
            again = isinstance(error, ConnectionError) or lost(error)
            if not again or time.monotonic() > give_up_at:
                raise
            await asyncio.sleep(0.05)


@pytest.mark.first
async def test_any_replica_answers_for_every_sandbox(fleet: Fleet) -> None:
    first, second = await fleet.start(), await fleet.start()
    made = await first.boxes.Create(pb.CreateSandboxRequest(labels={"a": "b"}))
    assert await second.boxes.Get(pb.GetSandboxRequest(id=made.id)) == made
    assert list((await second.boxes.List(pb.ListSandboxesRequest())).sandboxes) == [made]

    # unary, both kinds of streams at once, and errors with their codes
    write = pb.WriteFileRequest(sandbox_id=made.id, path="f", data=b"x" * 1000)
    more = pb.WriteFileRequest(data=b"y" * 1000)
    assert (await second.boxes.WriteFile(iter([write, more]))).size == 2000
    read = second.boxes.ReadFile(pb.ReadFileRequest(sandbox_id=made.id, path="f"))
    assert b"".join([chunk.data async for chunk in read]) == b"x" * 1000 + b"y" * 1000
    both = second.boxes.Exec()
    await both.write(start_of(made.id, "while read line; do echo got $line; done; echo end >&2; exit 3"))
    for word in ("one", "two"):
        await both.write(pb.ExecRequest(stdin=f"{word}\n".encode()))
        assert (await both.read()).stdout.data == f"got {word}\n".encode()
    await both.write(pb.ExecRequest(stdin_closed=True))
    rest = [await both.read(), await both.read()]
    assert {event.WhichOneof("kind") for event in rest} == {"stderr", "exit"}
    assert rest[-1].exit.exit_code == 3
    missing = pb.ReadFileRequest(sandbox_id=made.id, path="absent")
    here = await refusal(first.boxes.ReadFile(missing).read())
    there = await refusal(second.boxes.ReadFile(missing).read())
    assert here == there
    assert (there[0], there[2]["rock-error-code"]) == ("NOT_FOUND", "not_found")
    assert (await refusal(run(second.boxes, "sb-none", "true")))[0] == "NOT_FOUND"

    # what runs in a sandbox is named by the sandbox's id and more
    start = pb.StartProcessRequest(start=start_of(made.id, "echo kept").start)
    process = (await second.boxes.StartProcess(start)).process_id
    logs = pb.ProcessLogsRequest(process_id=process, follow=True)
    told = [event async for event in second.boxes.ProcessLogs(logs)]
    assert b"".join(event.stdout.data for event in told) == b"kept\n"

    # a watch on one replica hears of changes made through the other, in order
    watch = second.boxes.Watch(pb.WatchSandboxesRequest(after_revision=made.revision))
    for act in (second.boxes.Pause(pb.PauseSandboxRequest(id=made.id)),):
        paused = await act
    gone = await second.boxes.Delete(pb.DeleteSandboxRequest(id=made.id))
    heard = [await watch.read()]
    while heard[-1].state != DELETED:
        heard.append(await watch.read())
    watch.cancel()
    assert heard[-1] == gone
    revisions = [info.revision for info in heard]
    assert made.revision < paused.revision <= gone.revision
    assert revisions == sorted(set(revisions))
    code, said, _ = await refusal(run(second.boxes, made.id, "true"))
    assert (code, "DELETED (deleted by its user)" in said) == ("NOT_FOUND", True)


async def test_a_cancelled_call_ends_at_the_replica_that_runs_it(fleet: Fleet) -> None:
    first, second = await fleet.start(), await fleet.start()
    made = await first.boxes.Create(pb.CreateSandboxRequest())
    call = second.boxes.Exec()
    await call.write(start_of(made.id, "echo $$; exec sleep 600"))
    pid = (await call.read()).stdout.data.decode().strip()
    call.cancel()
    gone = f"while [ -d /proc/{pid} ]; do sleep 0.01; done; echo gone"
    assert await run(first.boxes, made.id, gone) == b"gone\n"
    code, _, _ = await refusal(run(second.boxes, made.id, "sleep 600", timeout=0.3))
    assert code == "DEADLINE_EXCEEDED"


async def test_one_key_on_both_replicas_at_once_makes_one_sandbox(fleet: Fleet) -> None:
    servers = [await fleet.start(), await fleet.start()]
    for number in range(8):
        request = pb.CreateSandboxRequest(idempotency_key=f"k{number}")
        made = await asyncio.gather(*(server.boxes.Create(request) for server in servers for _ in range(3)))
        assert {(info.id, info.state) for info in made} == {(made[0].id, RUNNING)}
    listed = (await servers[0].boxes.List(pb.ListSandboxesRequest())).sandboxes
    assert len(listed) == 8
    boxes = sum(each.boxes for each in (await servers[0].admin.Census(admin_pb2.CensusRequest())).backends)
    assert boxes == 8


@pytest.mark.first
async def test_a_killed_replicas_sandboxes_are_taken_over_and_their_commands_go_on(fleet: Fleet) -> None:
    first, second = await fleet.start(), await fleet.start()
    made = [await first.boxes.Create(pb.CreateSandboxRequest()) for _ in range(4)]
    kept = await second.boxes.Create(pb.CreateSandboxRequest())
    for info in made:
        await run(
            first.boxes,
            info.id,
            "(setsid bash -c 'while :; do date +%s%N > tick; sleep 0.02; done' &) ; echo $$ > who",
        )
    watch = second.boxes.Watch(pb.WatchSandboxesRequest(after_revision=kept.revision))
    first.kill()
    killed_at = time.monotonic()
    # asked at once: the call waits for the takeover instead of failing
    answers = await asyncio.gather(*(run(second.boxes, info.id, "cat who") for info in made))
    took_s = time.monotonic() - killed_at
    assert all(answers)
    for info in made:
        moving = 'a=$(cat tick); while [ "$a" = "$(cat tick)" ]; do sleep 0.01; done; echo on'
        assert await run(second.boxes, info.id, moving) == b"on\n"
        now = await second.boxes.Get(pb.GetSandboxRequest(id=info.id))
        assert (now.state, now.history[-1].reason) == (RUNNING, "taken up again after a restart")
    assert {(await watch.read()).id for _ in range(1)} <= {info.id for info in made}
    watch.cancel()
    print(f"takeover of {len(made)} sandboxes: {took_s:.2f} s with a lease of {LEASE_S} s")  # noqa: T201
    await first.ended()


async def test_the_last_replica_that_is_killed_leaves_its_sandboxes_to_the_next(fleet: Fleet) -> None:
    first = await fleet.start()
    made = await first.boxes.Create(pb.CreateSandboxRequest(idempotency_key="k"))
    await run(first.boxes, made.id, "echo kept > f")
    first.kill()
    await first.ended()
    second = await fleet.start()
    again = await persisting(lambda: second.boxes.Create(pb.CreateSandboxRequest(idempotency_key="k")))
    assert again.id == made.id
    assert await run(second.boxes, made.id, "cat f") == b"kept\n"


async def test_a_replica_that_was_stopped_too_long_gives_up_what_was_taken(fleet: Fleet) -> None:
    first, second = await fleet.start(), await fleet.start()
    made = await first.boxes.Create(pb.CreateSandboxRequest())
    await run(first.boxes, made.id, "echo 1 > n")
    first.process.send_signal(signal.SIGSTOP)
    try:
        assert await run(second.boxes, made.id, "cat n") == b"1\n"  # after the lease
    finally:
        first.process.send_signal(signal.SIGCONT)
    # It forwards now, like any other replica: one owner, and both answer.
    read = await persisting(lambda: run(first.boxes, made.id, "cat n"))
    assert read == b"1\n"
    assert await run(second.boxes, made.id, "echo 2 > n; cat n") == b"2\n"
    request = pb.CreateSandboxRequest(idempotency_key="k")
    assert (await persisting(lambda: first.boxes.Create(request))).state == RUNNING
    deleted = await persisting(lambda: first.boxes.Delete(pb.DeleteSandboxRequest(id=made.id)))
    assert deleted.state == DELETED


async def test_a_drain_under_load_fails_no_call_of_a_client_that_tries_again(fleet: Fleet) -> None:
    servers = [await fleet.start("--insecure", "--drain-s=10"), await fleet.start()]
    boxes = [await servers[number % 2].boxes.Create(pb.CreateSandboxRequest()) for number in range(6)]
    keys, done = itertools.count(), asyncio.Event()
    counts = [0] * len(boxes)
    turn: Iterator[int] = itertools.count()

    def someone() -> Server:
        """Return the servers by turns, as a balancer does that leaves out those that are gone."""
        living = [server for server in servers if server.process.poll() is None]
        return living[next(turn) % len(living)]

    async def count_up(number: int) -> None:
        """Write n to a file again and again: what was acknowledged must be there."""
        while not done.is_set():
            wish = str(counts[number] + 1).encode()
            request = pb.WriteFileRequest(sandbox_id=boxes[number].id, path="n", data=wish)
            await persisting(lambda: someone().boxes.WriteFile(iter([request])))  # noqa: B023
            counts[number] += 1
            assert await persisting(lambda: run(someone().boxes, boxes[number].id, "cat n")) == wish

    async def make_and_delete() -> None:
        while not done.is_set():
            request = pb.CreateSandboxRequest(idempotency_key=f"key-{next(keys)}")
            made = await persisting(lambda: someone().boxes.Create(request))  # noqa: B023
            again = await persisting(lambda: someone().boxes.Create(request))  # noqa: B023
            assert made.id == again.id
            delete = pb.DeleteSandboxRequest(id=made.id)
            await persisting(lambda: someone().boxes.Delete(delete))  # noqa: B023

    async with asyncio.TaskGroup() as group:
        for number in range(len(boxes)):
            group.create_task(count_up(number))
        group.create_task(make_and_delete())
        await asyncio.sleep(0.5)
        watch = servers[0].boxes.Watch(pb.WatchSandboxesRequest())
        await watch.read()
        long = servers[1].boxes.Exec()  # on a box of the server that drains
        await long.write(start_of(boxes[0].id, "echo begun; sleep 1; echo whole"))
        assert (await long.read()).stdout.data == b"begun\n"
        before = list(counts)
        answer = await servers[0].admin.Drain(admin_pb2.DrainRequest(within=Duration(seconds=50)))
        assert answer.durable >= 3
        with contextlib.suppress(grpc.aio.AioRpcError):  # it may have ended already
            assert not await servers[0].serving()
        assert (await end_of(watch))[0] == "UNAVAILABLE"
        assert await servers[0].ended() == 0
        assert (await long.read()).stdout.data == b"whole\n"
        assert (await long.read()).exit.exit_code == 0
        after = list(counts)
        await until(lambda: all(now > then for now, then in zip(counts, after, strict=True)), within_s=60)
        done.set()
    assert all(now > then for now, then in zip(counts, before, strict=True)), "every box went on"
    for number, info in enumerate(boxes):
        now = await servers[1].boxes.Get(pb.GetSandboxRequest(id=info.id))
        assert now.state == RUNNING
        assert int(await run(servers[1].boxes, info.id, "cat n")) >= counts[number]
    assert len((await servers[1].boxes.List(pb.ListSandboxesRequest())).sandboxes) == len(boxes)


async def test_a_draining_server_refuses_new_sandboxes_and_says_what_to_do(fleet: Fleet) -> None:
    first = await fleet.start("--insecure", "--drain-s=100")
    made = await first.boxes.Create(pb.CreateSandboxRequest())
    call = first.boxes.Exec()
    await call.write(start_of(made.id, "read line; echo $line"))
    watch = first.boxes.Watch(pb.WatchSandboxesRequest())
    await watch.read()
    second = await fleet.start()
    first.process.terminate()
    code, said, _ = await end_of(watch)
    assert (code, "the server is stopping" in said) == ("UNAVAILABLE", True)
    code, said, metadata = await refusal(first.boxes.Create(pb.CreateSandboxRequest()))
    assert (code, metadata["rock-error-code"]) == ("UNAVAILABLE", "unavailable")
    assert "Create the sandbox on another one" in said
    await call.write(pb.ExecRequest(stdin=b"to the end\n"))
    assert (await call.read()).stdout.data == b"to the end\n"
    call.cancel()
    assert await first.ended() == 0
    assert await run(second.boxes, made.id, "echo here") == b"here\n"


async def test_a_pass_is_worth_nothing_to_a_client_and_tenants_stay_apart(fleet: Fleet) -> None:
    tokens = fleet.folder / "tokens.json"
    texts = {}
    for tenant in ("ann", "bob"):
        token, texts[tenant] = new_token(tenant, ["sandbox"])
        add_token(tokens, token)
    first, second = await fleet.start(f"--tokens={tokens}"), await fleet.start(f"--tokens={tokens}")
    ann, bob = ({"metadata": (("authorization", f"Bearer {text}"),)} for text in texts.values())
    made = await first.boxes.Create(pb.CreateSandboxRequest(), **ann)
    assert await run(second.boxes, made.id, "echo mine", **ann) == b"mine\n"
    assert (await refusal(run(second.boxes, made.id, "echo mine", **bob)))[0] == "NOT_FOUND"
    assert (await refusal(run(second.boxes, made.id, "echo mine")))[0] == "UNAUTHENTICATED"
    path = "/rock.v1.SandboxService/Get"
    forged = Passes(os.urandom(32)).sign(to="x:y", method=path, caller=Admitted("ann"))
    for value in (forged, "", "nonsense", "e30=.00"):
        for extra in ((), ann["metadata"]):
            metadata = ((HEADER, value), *extra)
            got = await refusal(second.boxes.Get(pb.GetSandboxRequest(id=made.id), metadata=metadata))
            assert (got[0], "ann" in got[1]) == ("UNAUTHENTICATED", False)
    await second.boxes.Delete(pb.DeleteSandboxRequest(id=made.id), **ann)


async def test_nobody_is_forwarded_for_nobody(fleet: Fleet) -> None:
    # A sandbox of before there were tokens, of nobody; then two servers that ask for them.
    early = await fleet.start()
    old = await early.boxes.Create(pb.CreateSandboxRequest(idempotency_key="old"))
    pass_of_old = (await early.boxes.IssueToken(pb.IssueSandboxTokenRequest(sandbox_id=old.id))).token
    early.process.terminate()
    assert await early.ended() == 0
    tokens = fleet.folder / "tokens.json"
    texts = {}
    for tenant, scope in (("ann", "sandbox"), ("op", "admin")):
        token, texts[tenant] = new_token(tenant, [scope])
        add_token(tokens, token)
    ann, op = ({"metadata": (("authorization", f"Bearer {text}"),)} for text in texts.values())
    first, second = await fleet.start(f"--tokens={tokens}"), await fleet.start(f"--tokens={tokens}")
    made = await first.boxes.Create(pb.CreateSandboxRequest(), **ann)
    for sandbox_id in (old.id, made.id):
        for server in (first, second):
            issue = pb.IssueSandboxTokenRequest(sandbox_id=sandbox_id)
            for call in (
                run(server.boxes, sandbox_id, "echo in"),
                server.boxes.IssueToken(issue),
                server.boxes.Delete(pb.DeleteSandboxRequest(id=sandbox_id)),
                server.boxes.Stat(pb.StatRequest(sandbox_id=sandbox_id, path=".")),
            ):
                assert (await refusal(call))[0] == "UNAUTHENTICATED"
            # refused at once, before there is a message to say which sandbox it is about
            assert await server.channel.stream_stream(EXEC)().code() is grpc.StatusCode.UNAUTHENTICATED
    inside = {"metadata": (("authorization", f"Bearer {pass_of_old}"),)}
    for server in (first, second):
        assert (await refusal(run(server.boxes, old.id, "echo in", **inside)))[0] == "UNAUTHENTICATED"
        assert (await refusal(run(server.boxes, old.id, "echo in", **ann)))[0] == "NOT_FOUND"
        listed = (await server.boxes.List(pb.ListSandboxesRequest(), **ann)).sandboxes
        assert old.id not in [info.id for info in listed]
        again = await server.boxes.Create(pb.CreateSandboxRequest(idempotency_key="old"), **ann)
        assert again.id != old.id
    # the operator sees what is nobody's, and may end it, on the server that has it
    swept = admin_pb2.CensusRequest(sweep=True)
    seen = [dict(one.orphans) for one in (await first.admin.Census(admin_pb2.CensusRequest(), **op)).backends]
    assert any(old.id in what for one in seen for what in one.values()), seen
    await persisting(lambda: first.admin.Census(swept, **op))
    seen = [
        dict(one.orphans) for one in (await second.admin.Census(admin_pb2.CensusRequest(), **op)).backends
    ]
    assert not any(old.id in what for one in seen for what in one.values())
    assert await run(second.boxes, made.id, "echo mine", **ann) == b"mine\n"


async def test_a_pass_for_nobody_is_no_pass_where_tokens_are_asked_for(fleet: Fleet) -> None:
    tokens = fleet.folder / "tokens.json"
    token, text = new_token("ann", ["sandbox"])
    add_token(tokens, token)
    ann = {"metadata": (("authorization", f"Bearer {text}"),)}
    guarded, careless = await fleet.start(f"--tokens={tokens}"), await fleet.start()
    made = await guarded.boxes.Create(pb.CreateSandboxRequest(), **ann)
    # one server that was started without tokens makes nobody somebody: it forwards nothing of a tenant's
    assert (await refusal(run(careless.boxes, made.id, "echo in")))[0] == "NOT_FOUND"
    own = await careless.boxes.Create(pb.CreateSandboxRequest())
    assert (await refusal(run(guarded.boxes, own.id, "echo in", **ann)))[0] == "NOT_FOUND"
    assert await run(careless.boxes, own.id, "echo own") == b"own\n"


async def test_a_revoked_token_ends_streams_that_run_on_another_replica(fleet: Fleet) -> None:
    tokens = fleet.folder / "tokens.json"
    token, text = new_token("ann", ["sandbox"])
    add_token(tokens, token)
    ann = {"metadata": (("authorization", f"Bearer {text}"),)}
    first, second = await fleet.start(f"--tokens={tokens}"), await fleet.start(f"--tokens={tokens}")
    made = await first.boxes.Create(pb.CreateSandboxRequest(), **ann)
    call = second.boxes.Exec(**ann)
    await call.write(start_of(made.id, "echo begun; exec sleep 600"))
    assert (await call.read()).stdout.data == b"begun\n"
    revoke_token(tokens, token.id)
    code, said, _ = await end_of(call)
    assert (code, "was revoked while this stream ran" in said) == ("UNAUTHENTICATED", True)
