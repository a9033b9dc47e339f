"""The Agent Trajectory Interchange Format, version 1.8, as values: field for field what Harbor's own models take.

`tests/integration/cli/test_harbor_models.py` holds what is written here against these models. Decoding refuses fields
that the format has not.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

__all__ = [
    "VERSIONS",
    "AtifAgent",
    "AtifMetrics",
    "AtifObservation",
    "AtifResult",
    "AtifStep",
    "AtifTrajectory",
    "ContentPart",
    "FinalMetrics",
    "SubagentRef",
    "ToolCall",
]

VERSIONS = tuple(f"ATIF-v1.{minor}" for minor in range(9))
"""That are read; the last one is written."""


class _Strict(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True, kw_only=True):
    """Base of all parts: what is not set is not written, and nothing unknown is read."""


class ContentPart(_Strict):
    type: Literal["text", "image", "audio"]
    text: str | None = None
    source: dict[str, Any] | None = None


class SubagentRef(_Strict):
    trajectory_id: str | None = None
    session_id: str | None = None
    trajectory_path: str | None = None
    extra: dict[str, Any] | None = None


class ToolCall(_Strict):
    tool_call_id: str
    function_name: str
    arguments: dict[str, Any]
    extra: dict[str, Any] | None = None


class AtifResult(_Strict):
    source_call_id: str | None = None
    content: str | list[ContentPart] | None = None
    subagent_trajectory_ref: list[SubagentRef] | None = None
    extra: dict[str, Any] | None = None


class AtifObservation(_Strict):
    results: list[AtifResult]


class AtifMetrics(_Strict):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    cached_tokens: int | None = None
    cost_usd: float | None = None
    prompt_token_ids: list[int] | None = None
    completion_token_ids: list[int] | None = None
    logprobs: list[float] | None = None
    extra: dict[str, Any] | None = None


class AtifStep(_Strict):
    step_id: int
    source: Literal["system", "user", "agent"]
    message: str | list[ContentPart]
    timestamp: str | None = None
    model_name: str | None = None
    reasoning_effort: str | float | None = None
    reasoning_content: str | None = None
    tool_calls: list[ToolCall] | None = None
    observation: AtifObservation | None = None
    metrics: AtifMetrics | None = None
    is_copied_context: bool | None = None
    llm_call_count: int | None = None
    extra: dict[str, Any] | None = None


class AtifAgent(_Strict):
    name: str
    version: str
    model_name: str | None = None
    tool_definitions: list[dict[str, Any]] | None = None
    extra: dict[str, Any] | None = None


class FinalMetrics(_Strict):
    total_prompt_tokens: int | None = None
    total_completion_tokens: int | None = None
    total_cached_tokens: int | None = None
    total_cost_usd: float | None = None
    total_steps: int | None = None
    extra: dict[str, Any] | None = None


class AtifTrajectory(_Strict):
    schema_version: str
    agent: AtifAgent
    steps: list[AtifStep]
    session_id: str | None = None
    trajectory_id: str | None = None
    notes: str | None = None
    final_metrics: FinalMetrics | None = None
    continued_trajectory_ref: str | None = None
    extra: dict[str, Any] | None = None
    subagent_trajectories: list[AtifTrajectory] | None = None
