"""OpenAI's errors, as chat completions and responses share them.

Status, type and code are those that clients decide by: 400 ends a request, `context_length_exceeded` starts compaction,
429 and 5xx are repeated. A used-up budget is the 400 of a billing limit, not the 429 of `insufficient_quota`, which several
clients repeat like any other 429.
"""

from __future__ import annotations

from agent_runtime.chat import Refusal, RefusalKind
from agent_runtime.dialects.base import Answer, encode, retry_headers

__all__ = ["refuse", "said"]

_ERRORS: dict[RefusalKind, tuple[int, str, str | None]] = {
    RefusalKind.BAD_REQUEST: (400, "invalid_request_error", None),
    RefusalKind.UNAUTHORIZED: (401, "invalid_request_error", "invalid_api_key"),
    RefusalKind.NOT_FOUND: (404, "invalid_request_error", None),
    RefusalKind.TOO_LARGE: (413, "invalid_request_error", "request_too_large"),
    RefusalKind.CONTEXT_OVERFLOW: (400, "invalid_request_error", "context_length_exceeded"),
    RefusalKind.BUDGET: (400, "invalid_request_error", "billing_hard_limit_reached"),
    RefusalKind.RATE_LIMIT: (429, "requests", "rate_limit_exceeded"),
    RefusalKind.UPSTREAM: (500, "server_error", None),
    RefusalKind.CLOSED: (403, "invalid_request_error", "access_terminated"),
}


def said(refusal: Refusal, overflow: str, param: str) -> dict[str, str | None]:
    """Return the error object: message, type, param, code. `overflow` is what is said of a full context, `param` where."""
    _, kind, code = _ERRORS[refusal.kind]
    if refusal.kind is RefusalKind.CONTEXT_OVERFLOW:
        return {"message": overflow, "type": kind, "param": param, "code": code}
    return {
        "message": refusal.message,
        "type": kind,
        "param": refusal.param or None,
        "code": refusal.code or code,
    }


def refuse(refusal: Refusal, overflow: str, param: str) -> Answer:
    """Return status, headers and body. An engine that says when to come back is 503, one that does not 500."""
    status = _ERRORS[refusal.kind][0]
    if refusal.kind is RefusalKind.UPSTREAM and refusal.retry_after_s is not None:
        status = 503
    return status, retry_headers(refusal, status), encode({"error": said(refusal, overflow, param)})
