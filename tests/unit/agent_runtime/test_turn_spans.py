"""Each turn of a session in OpenTelemetry: ids, label, tokens, and the rollout's span above it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from agents_at_gateway import TEMPLATE, Gate, Scripted, chat, rollout_request
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode
from waiting import until

from agent_runtime.chat import Refusal
from agent_runtime.gateway.session import Budget, Session
from agent_runtime.policy import PolicyError
from rock_env.telemetry import tracing


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


async def test_every_turn_has_its_ids_and_its_final_label(exported: InMemorySpanExporter) -> None:
    policy = Scripted("one", "two", "a title")
    with tracing.span("rollout"):
        session = Session(
            "secret-key", rollout_request("r7"), sampler=policy, template=TEMPLATE, budget=Budget()
        )
    lost = session.ask(chat("a"))
    await lost.outcome
    session.lost(lost, broken=True)
    await session.answer(chat("a"))
    await session.answer(chat("name this", tools=False))
    assert [span.name for span in exported.get_finished_spans()] == ["rollout"]
    await session.close()
    rollout, *turns = exported.get_finished_spans()
    assert [span.attributes and span.attributes["rock.label"] for span in turns] == [
        "superseded",
        "main",
        "side",
    ]
    for index, span in enumerate(turns):
        attributes = span.attributes
        assert attributes is not None
        assert span.name == "agent.turn"
        assert span.parent is not None
        assert rollout.context is not None
        assert span.parent.span_id == rollout.context.span_id
        assert attributes["rock.turn"] == index
        assert attributes["rock.trajectory_id"] == "r7"
        assert attributes["rock.session_id"] == session.id
        assert attributes["gen_ai.usage.input_tokens"] == len(policy.seen[index].prompt_ids)
        assert attributes["gen_ai.usage.output_tokens"] == len(policy.sampled[index])
        assert "secret-key" not in str(dict(attributes))


async def test_a_turn_ends_when_its_answer_was_there(exported: InMemorySpanExporter) -> None:
    session = Session(
        "k", rollout_request(), sampler=Scripted("one", "two"), template=TEMPLATE, budget=Budget()
    )
    await session.answer(chat("a"))
    await session.answer(chat("a", "one", "b"))
    await session.close()
    first, second = exported.get_finished_spans()
    assert first.end_time is not None
    assert second.start_time is not None
    assert first.end_time <= second.start_time


async def test_a_call_without_a_sample_ends_as_an_error(exported: InMemorySpanExporter) -> None:
    policy = Scripted(PolicyError("x"), Gate("never"))
    session = Session("k", rollout_request(), sampler=policy, template=TEMPLATE, budget=Budget())
    with pytest.raises(Refusal):
        await session.answer(chat("a"))
    session.ask(chat("b"))
    await until(lambda: len(policy.seen) == 2)
    await session.close()
    spans = exported.get_finished_spans()
    assert [span.status.status_code for span in spans] == [StatusCode.ERROR, StatusCode.ERROR]
    assert [span.status.description for span in spans] == ["upstream", "broken off"]
    assert [(span.attributes or {}).get("rock.blame") for span in spans] == ["infrastructure", None]


async def test_without_an_sdk_nothing_is_kept() -> None:
    session = Session("k", rollout_request(), sampler=Scripted("one"), template=TEMPLATE, budget=Budget())
    await session.answer(chat("a"))
    assert session._spans._kept == []
    await session.close()
