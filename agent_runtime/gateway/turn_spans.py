"""One OpenTelemetry span for each turn of a session, which says at the end what the turn was for.

Used by `session`. What a call was for may show later only, so a span stays open until the session ends and is then closed
as of the moment when its answer was there. Where no SDK was set up nothing is kept.
"""

from __future__ import annotations

import time

from opentelemetry.trace import Span, Status, StatusCode

from agent_runtime.calls.labels import labels
from agent_runtime.calls.tree import Call, CallTree
from agent_runtime.chat import RefusalKind
from agent_runtime.faults import blame_of_refusal
from agent_runtime.types import oldest_version
from rock_env.telemetry import tracing

__all__ = ["TurnSpans"]


class TurnSpans:
    """The spans of a session's turns: `agent.turn`, children of the span in which each was begun."""

    def __init__(self, session_id: str, trajectory_id: str) -> None:
        self._session_id = session_id
        self._trajectory_id = trajectory_id
        self._kept: list[tuple[Span, int, int]] = []

    def begin(self, number: int) -> Span:
        """Start the span of the `number`-th model call; ended by `fail`, or by `end` after `keep`."""
        return tracing.open_span(
            "agent.turn", session_id=self._session_id, trajectory_id=self._trajectory_id, call=number
        )

    def keep(self, span: Span, call: Call, prompt_tokens: int) -> None:
        """Note what was sampled."""
        if not span.is_recording():
            return
        completion = call.completion
        span.set_attributes(
            {
                "rock.turn": call.index,
                "rock.policy_version": oldest_version(completion.policy_version),
                "rock.drift": str(call.drift),
                "rock.malformed": call.parsed.malformed,
                "gen_ai.usage.input_tokens": prompt_tokens,
                "gen_ai.usage.output_tokens": len(completion.ids),
                "gen_ai.response.finish_reasons": [completion.finish_reason],
            }
        )
        self._kept.append((span, call.index, time.time_ns()))

    def fail(self, span: Span, kind: RefusalKind | None) -> None:
        """End the span of a call without a sample: what the agent was told and whose fault that is; None for broken off."""
        if not span.is_recording():
            return
        span.set_status(Status(StatusCode.ERROR, str(kind) if kind else "broken off"))
        if kind is not None:
            span.set_attribute("rock.blame", str(blame_of_refusal(kind)))
        span.end()

    def end(self, tree: CallTree) -> None:
        """End all spans, each with its turn's label."""
        found = labels(tree) if self._kept else []
        for span, index, at_ns in self._kept:
            span.set_attribute("rock.label", str(found[index]))
            span.end(end_time=at_ns)
        self._kept.clear()
