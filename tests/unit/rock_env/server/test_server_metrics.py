"""Metrics: what is counted under which labels, and how it is served."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest
from prometheus_client.parser import text_string_to_metric_families

from rock_env.errors import InvalidArgument, Unavailable
from rock_env.lifecycle import DeadlineKind, SandboxState, born, renewed, transition
from rock_env.sandbox import ExecResult
from rock_env.server.metrics import CONTENT_TYPE, Metrics, serve_metrics
from rock_env.spec import SandboxSpec


def values(metrics: Metrics, name: str) -> dict[tuple[str, ...], float]:
    """Return a metric's samples by their label values, in the order of the labels' names."""
    families = text_string_to_metric_families(metrics.page().decode())
    return {
        tuple(value for _, value in sorted(sample.labels.items())): sample.value
        for family in families
        for sample in family.samples
        if sample.name == name
    }


def end(**fields: object) -> ExecResult:
    result = ExecResult(exit_code=0, signal=None, stdout=b"", stderr=b"", duration_s=0.5)
    return replace(result, **fields)  # type: ignore[arg-type]


def test_commands_are_told_apart_by_how_they_ended() -> None:
    metrics = Metrics()
    for result in (
        end(),
        end(exit_code=3),
        end(exit_code=None, signal=15),
        end(exit_code=None, signal=9, timed_out=True),
        end(exit_code=None, signal=9, oom_killed=True),
        end(exit_code=None, infra_error="box gone"),
        end(),
    ):
        metrics.command(result)
    assert values(metrics, "rock_commands_total") == {
        ("ok",): 2,
        ("exit",): 1,
        ("signal",): 1,
        ("timeout",): 1,
        ("oom",): 1,
        ("infra",): 1,
    }
    assert values(metrics, "rock_command_seconds_count") == {(): 7}


def test_a_sandbox_counts_once_per_change_of_state() -> None:
    metrics = Metrics()
    record = born("sb-1", SandboxSpec(), backend="process", at=100.0, lease_s=60)
    metrics.changed(record)
    record = transition(record, SandboxState.RUNNING, at=100.25)
    for at in (101.0, 110.0):
        metrics.changed(record)
        record = renewed(record, lease_s=60, at=at)
    assert values(metrics, "rock_sandbox_create_seconds_count") == {("process", "miss"): 1}
    assert values(metrics, "rock_sandbox_create_seconds_sum") == {("process", "miss"): 0.25}
    for state in (SandboxState.DELETING, SandboxState.DELETED):
        record = transition(record, state, at=170.0, reason=DeadlineKind.LEASE)
        metrics.changed(record)
    assert values(metrics, "rock_sandbox_deadlines_total") == {("lease",): 1}
    assert values(metrics, "rock_sandbox_failures_total") == {}


@pytest.mark.parametrize(("ran", "stage"), [(False, "start"), (True, "running")])
def test_failures_tell_a_bad_start_from_a_death(ran: bool, stage: str) -> None:
    metrics = Metrics()
    record = born("sb-1", SandboxSpec(), backend="docker", at=1.0)
    metrics.changed(record)
    for state in (SandboxState.RUNNING, SandboxState.FAILED)[0 if ran else 1 :]:
        record = transition(record, state, at=2.0)
        metrics.changed(record)
    assert values(metrics, "rock_sandbox_failures_total") == {("docker", stage): 1}


def test_a_failed_start_that_is_stored_once_counts() -> None:
    metrics = Metrics()
    record = born("sb-1", SandboxSpec(), backend="docker", at=1.0)
    metrics.changed(record)
    for state in (SandboxState.FAILED, SandboxState.DELETING, SandboxState.DELETED):
        record = transition(record, state, at=2.0, reason="no such image")
    metrics.changed(record)
    assert values(metrics, "rock_sandbox_failures_total") == {("docker", "start"): 1}


def test_a_death_is_not_counted_again_when_its_box_is_deleted() -> None:
    metrics = Metrics()
    record = born("sb-1", SandboxSpec(), backend="docker", at=1.0)
    metrics.changed(record)
    for state in (
        *(SandboxState.RUNNING, SandboxState.FAILED),
        *(SandboxState.DELETING, SandboxState.DELETED),
    ):
        record = transition(record, state, at=2.0)
        metrics.changed(record)
    assert values(metrics, "rock_sandbox_failures_total") == {("docker", "running"): 1}


def test_a_gauge_is_read_at_each_scrape() -> None:
    metrics = Metrics()
    now = {("RUNNING", "process"): 3}
    metrics.gauge("rock_sandboxes", "Sandboxes.", ("state", "backend"), lambda: now)
    assert values(metrics, "rock_sandboxes") == {("process", "RUNNING"): 3}
    now = {("PAUSED", "docker"): 1}
    assert values(metrics, "rock_sandboxes") == {("docker", "PAUSED"): 1}


async def ask(port: int, request: bytes) -> tuple[bytes, bytes]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(request)
    head, _, body = (await reader.read()).partition(b"\r\n\r\n")
    writer.close()
    return head, body


async def test_the_listener_serves_metrics_and_nothing_else() -> None:
    metrics = Metrics()
    metrics.command(end())
    async with await serve_metrics(metrics, "127.0.0.1:0") as listener:
        port = listener.sockets[0].getsockname()[1]
        head, body = await ask(port, b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200 OK")
        assert CONTENT_TYPE.encode() in head
        assert b'rock_commands_total{outcome="ok"} 1.0' in body
        assert (await ask(port, b"GET / HTTP/1.1\r\n\r\n"))[0].startswith(b"HTTP/1.1 404")
        assert (await ask(port, b"POST /metrics HTTP/1.1\r\n\r\n"))[0].startswith(b"HTTP/1.1 405")
        head, body = await ask(port, b"HEAD /metrics HTTP/1.1\r\n\r\n")
        assert (head[:15], body) == (b"HTTP/1.1 200 OK", b"")
        await ask(port, b"x" * 100_000)  # an endless head costs a connection, not the listener
        with pytest.raises(Unavailable, match="cannot serve metrics"):
            await serve_metrics(metrics, f"127.0.0.1:{port}")
    with pytest.raises(InvalidArgument, match="HOST:PORT"):
        await serve_metrics(metrics, "unix:///nowhere")
