"""One trace from a client's call to the command in its box, and the server's metrics of it, over real sockets."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import httpx
import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind
from prometheus_client.parser import text_string_to_metric_families
from secure_servers import SERVER, TOYS, token
from secure_servers import serving as serving_process

from rock_env.backends.process.backend import ProcessBackend
from rock_env.client import Client, Credentials
from rock_env.client.registry import RegistryClient
from rock_env.errors import NotFound, Unauthenticated, Unimplemented
from rock_env.local import embedded
from rock_env.server.metrics import Metrics
from rock_env.server.observe import Observation
from rock_env.server.sandboxes.core import SandboxCore
from rock_env.server.services.sandboxes import add_sandbox_service
from rock_env.spec import SandboxSpec
from rock_env.store.sqlite.records import SqliteStore
from rock_env.telemetry import tracing


@asynccontextmanager
async def serving(folder: Path) -> AsyncIterator[tuple[Client, Metrics]]:
    """Serve sandboxes as the server's set-up does; yield a client and the metrics."""
    (folder / "boxes").mkdir()
    watched = Observation(metrics="127.0.0.1:0")
    assert watched.metrics is not None
    backend = watched.backend(ProcessBackend(root=folder / "boxes", isolation="none"))
    server = grpc.aio.server(interceptors=watched.interceptors)
    async with await SqliteStore.open() as store, SandboxCore(backend, watched.store(store)) as core:
        add_sandbox_service(server, core)
        server.add_insecure_port(f"unix://{folder}/socket")
        await server.start()
        async with Client(f"unix://{folder}/socket", credentials=Credentials()) as client:
            yield client, watched.metrics
        core.stop()
        await server.stop(None)
    await backend.close()


@pytest.fixture
def exported(monkeypatch: pytest.MonkeyPatch) -> Iterator[InMemorySpanExporter]:
    """Set up an SDK for this test alone."""
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", provider)
    monkeypatch.setattr(tracing, "_tracer", provider.get_tracer("rock_env"))
    yield exporter
    provider.shutdown()


def chain(span: ReadableSpan, spans: dict[int, ReadableSpan]) -> list[tuple[str, str]]:
    """Return the names and kinds from a span up to its root."""
    found = [(span.name, span.kind.name)]
    while span.parent is not None:
        span = spans[span.parent.span_id]
        found.append((span.name, span.kind.name))
    return found


def traceparent(span: Any) -> str:
    """Return what a span hands on."""
    context = span.context
    return f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags:02x}"


SERVICE = "rock.v1.SandboxService"


async def test_a_trace_leads_from_the_client_into_the_command(
    tmp_path: Path, exported: InMemorySpanExporter
) -> None:
    async with serving(tmp_path) as (client, _):
        with tracing.span("rollout"):
            async with await client.sandboxes.create() as box:
                result = await box.exec(["sh", "-c", "echo $TRACEPARENT; exit 3"])
                running = box.start(["sh", "-c", "echo $TRACEPARENT"], resumable=False)
                async with running:
                    live = await running.wait()
                own = await box.exec(["sh", "-c", "echo $TRACEPARENT"], env={"TRACEPARENT": "mine"})
            with pytest.raises(NotFound):
                await client.sandboxes.get("sb-unknown")
    spans = {span.context.span_id: span for span in exported.get_finished_spans()}
    by_name: dict[str, list[ReadableSpan]] = {}
    for span in exported.get_finished_spans():
        by_name.setdefault(span.name, []).append(span)
    assert len({span.context.trace_id for span in spans.values()}) == 1

    command = by_name["command"][0]
    assert command.parent is not None
    assert chain(command, spans) == [
        ("command", "INTERNAL"),
        (f"{SERVICE}/Exec", "SERVER"),
        (f"{SERVICE}/Exec", "CLIENT"),
        ("rollout", "INTERNAL"),
    ]
    # A command that can be taken up again names its caller's span, the same at each attempt.
    assert traceparent(spans[spans[command.parent.span_id].parent.span_id]) == result.stdout.decode().strip()
    other = next(span for span in by_name["command"] if "rock.exec_id" not in (span.attributes or {}))
    assert traceparent(other) == live.stdout.decode().strip()
    assert own.stdout == b"mine\n"
    assert command.attributes is not None
    assert command.attributes["rock.sandbox_id"] == box.id
    assert command.attributes["rock.exit_code"] == 3
    assert "argv" not in str(command.attributes)

    assert chain(by_name["backend.create"][0], spans)[1:] == [
        (f"{SERVICE}/Create", "SERVER"),
        (f"{SERVICE}/Create", "CLIENT"),
        ("rollout", "INTERNAL"),
    ]
    failed = next(span for span in by_name[f"{SERVICE}/Get"] if span.kind is SpanKind.SERVER)
    assert failed.status.description == "NOT_FOUND"
    assert failed.attributes is not None
    assert failed.attributes["rock.sandbox_id"] == "sb-unknown"


async def test_without_an_sdk_there_are_no_spans_and_no_variable(tmp_path: Path) -> None:
    async with serving(tmp_path) as (client, _), await client.sandboxes.create() as box:
        assert not tracing.tracing()
        assert (await box.exec(["sh", "-c", "echo -$TRACEPARENT-"])).stdout == b"--\n"


async def test_a_server_counts_what_happened(tmp_path: Path) -> None:
    async with serving(tmp_path) as (client, metrics):
        async with await client.sandboxes.create() as box:
            await box.exec(["true"])
            await box.exec(["sleep", "60"], timeout_s=0.05)
            await box.files.write("file", b"x" * 1000)
        with pytest.raises(NotFound):
            await client.sandboxes.get("sb-unknown")
        with pytest.raises(Unimplemented):
            await client.sandboxes.create(spec=SandboxSpec(runtime="runsc"))
        families = {f.name: f for f in text_string_to_metric_families(metrics.page().decode())}

    def sample(name: str, **labels: str) -> float:
        family = families[name]
        found = [s.value for s in family.samples if labels.items() <= s.labels.items()]
        return found[0]

    assert sample("rock_rpcs", method="SandboxService/Create", code="OK") == 1
    assert sample("rock_rpcs", method="SandboxService/Get", code="NOT_FOUND") == 1
    assert sample("rock_rpcs", method="SandboxService/Exec", code="OK") == 2
    assert sample("rock_commands", outcome="ok") == 1
    assert sample("rock_commands", outcome="timeout") == 1
    assert sample("rock_transfer_bytes", method="SandboxService/WriteFile", direction="in") > 1000
    names = {(s.name, s.labels.get("operation")) for s in families["rock_store_seconds"].samples}
    assert {("rock_store_seconds_count", "add"), ("rock_store_seconds_count", "save")} <= names
    assert sample("rock_sandbox_create_seconds", backend="process", pool="miss") >= 0
    assert sample("rock_sandbox_failures", backend="process", stage="start") == 1
    ids = {value for family in families.values() for s in family.samples for value in s.labels.values()}
    assert box.id not in ids


async def test_a_step_carries_its_trace_through_another_process(exported: InMemorySpanExporter) -> None:
    options = [f"--env={TOYS}:BOX", "--isolation=none"]
    async with embedded(options) as address, Client(address, credentials=Credentials()) as client:
        env = await client.make("toy_box")
        await env.reset("train/0", 1)
        observation = (await env.step("echo $TRACEPARENT")).observation
        await env.close()
    (step,) = [span for span in exported.get_finished_spans() if span.name == "rock.v1.EnvService/Step"]
    assert step.attributes == {"rock.env_id": env.env_id}
    assert observation.split("-")[1:3] == [f"{step.context.trace_id:032x}", f"{step.context.span_id:016x}"]


async def test_a_server_serves_metrics_and_logs_json_where_it_is_told_to(tmp_path: Path) -> None:
    text = token(tmp_path / "t.json", "blue", "sandbox", "env")
    options = ["--tokens=t.json", "--metrics=127.0.0.1:0", "--log-format=json"]
    with serving_process([*SERVER, *options], tmp_path) as (_, address):
        async with Client(address, credentials=Credentials(token=text)) as client:
            await client.sandboxes.list()
        async with RegistryClient(address, credentials=Credentials(token=text)) as images:
            await images.list()
        wrong = text[:-1] + ("0" if text[-1] != "0" else "1")
        async with Client(address, credentials=Credentials(token=wrong)) as stranger:
            with pytest.raises(Unauthenticated):
                await stranger.sandboxes.list()
        lines = [json.loads(line) for line in (tmp_path / "log").read_text().splitlines()]
        where = next(line["message"] for line in lines if "metrics are at" in line["message"])
        async with httpx.AsyncClient(timeout=60) as http:
            page = (await http.get(where.rpartition(" ")[2])).text
    counted = {
        tuple(sample.labels.values()): sample.value
        for family in text_string_to_metric_families(page)
        for sample in family.samples
        if sample.name == "rock_rpcs_total"
    }
    assert counted == {
        ("OK", "SandboxService/List"): 1.0,
        ("OK", "RegistryService/List"): 1.0,
    }, "a stranger's call ends at the port"
    refused = next(line for line in lines if "call refused" in line["message"])
    assert "SandboxService/List" in refused["message"]
    assert wrong.rpartition("_")[2] not in (tmp_path / "log").read_text()
