"""The only module that knows both the domain types and their protobuf messages.

It converts and checks nothing else: no sockets, no state.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from rock_env.env import Artifact, Info, StepResult, Verdict
from rock_env.errors import RockError, from_code, one_line
from rock_env.proto.v1 import env_pb2 as pb
from rock_env.spec import TaskSpec

__all__ = [
    "artifacts_of",
    "decode_info",
    "encode_info",
    "error_of",
    "evaluate_response",
    "fill_error",
    "reset_response",
    "step_response",
    "step_result",
    "verdict",
]

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(dict[str, str | int | float | bool]).decode
_EMPTY: Info = {}


def encode_info(info: Info) -> str:
    """Return `info` as JSON, or "" for an empty one. Raise `TypeError` for a value JSON cannot hold."""
    return _encode(info).decode() if info else ""


def decode_info(text: str) -> Info:
    """Return the mapping `text` holds; "" means empty."""
    return _decode(text) if text else _EMPTY


def step_response(env_id: str, result: StepResult, artifacts: Sequence[Artifact] = ()) -> pb.StepResponse:
    """Build the reply to one step."""
    return pb.StepResponse(
        env_id=env_id,
        observation=result.observation,
        reward=result.reward,
        terminated=result.terminated,
        truncated=result.truncated,
        info_json=encode_info(result.info),
        artifacts=map(_artifact, artifacts),
    )


def reset_response(
    env_id: str,
    task: TaskSpec,
    observation: str,
    info: Info,
    *,
    sandbox_id: str = "",
    image: str = "",
    artifacts: Sequence[Artifact] = (),
) -> pb.ResetResponse:
    """Build the reply to a reset or a restore."""
    return pb.ResetResponse(
        env_id=env_id,
        observation=observation,
        info_json=encode_info(info),
        instruction=task.instruction,
        sandbox_id=sandbox_id,
        brief=task.brief,
        workdir=task.workdir,
        image=image,
        artifacts=map(_artifact, artifacts),
    )


def evaluate_response(
    env_id: str, verdict: Verdict, artifacts: Sequence[Artifact] = ()
) -> pb.EvaluateResponse:
    """Build the reply to one evaluation."""
    return pb.EvaluateResponse(
        env_id=env_id,
        reward=verdict.reward,
        passed=verdict.passed,
        details=verdict.details,
        artifacts=map(_artifact, artifacts),
    )


def _artifact(artifact: Artifact) -> pb.Artifact:
    return pb.Artifact(
        name=artifact.name,
        media_type=artifact.media_type,
        sha256=artifact.sha256,
        size=artifact.size,
        missing=artifact.missing,
    )


def artifacts_of(reply: Any) -> tuple[Artifact, ...]:
    """Read the artifacts of a reply to a reset, a step or an evaluation."""
    return tuple(
        Artifact(each.name, each.media_type, each.sha256, each.size, each.missing) for each in reply.artifacts
    )


def step_result(reply: pb.StepResponse) -> StepResult:
    """Read the reply to one step."""
    text = reply.info_json
    return StepResult(
        reply.observation,
        reply.reward,
        reply.terminated,
        reply.truncated,
        _decode(text) if text else _EMPTY,
    )


def verdict(reply: pb.EvaluateResponse) -> Verdict:
    """Read the reply to one evaluation."""
    return Verdict(reward=reply.reward, passed=reply.passed, details=reply.details)


def fill_error(reply: Any, error: RockError) -> Any:
    """Put `error` into a reply that has an `error` field, and return the reply."""
    reply.error.code = error.code
    reply.error.message = one_line(error.message)
    if error.retry_after_s is not None:
        reply.error.retry_after_s = error.retry_after_s
    return reply


def error_of(reply: Any) -> RockError | None:
    """Return the error a reply carries, rebuilt by its code, or None."""
    if not reply.HasField("error"):
        return None
    item = reply.error
    return from_code(item.code, item.message, retry_after_s=item.retry_after_s or None)
