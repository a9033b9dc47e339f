"""The wire formats by which agents speak to a model: what is posted to which path, and how it is answered.

    dialect = of_path(path)
    request = dialect.parse(body, headers)               raises `Refusal`
    dialect.reply(reply, request)                        JSON, with `JSON_HEADERS`
    dialect.stream(reply, request)                       server-sent events, with `STREAM_HEADERS`
    status, headers, body = dialect.refuse(refusal)

While an answer is sampled a stream may begin with `opening(request, name)`, go on with `keep_alive(request, name)`, and
end with `stream(reply, request, name)` or `refuse_mid_stream(refusal, name)`: one name throughout.
"""

from __future__ import annotations

from agent_runtime.dialects.base import JSON_HEADERS, STREAM_HEADERS, Answer, Dialect, Headers
from agent_runtime.dialects.chat import CHAT
from agent_runtime.dialects.messages import MESSAGES
from agent_runtime.dialects.models import model_body, models_body
from agent_runtime.dialects.responses import RESPONSES

__all__ = [
    "CHAT",
    "COUNT_TOKENS",
    "DIALECTS",
    "JSON_HEADERS",
    "MESSAGES",
    "MODELS",
    "RESPONSES",
    "STREAM_HEADERS",
    "Answer",
    "Dialect",
    "Headers",
    "model_body",
    "models_body",
    "of_path",
]

DIALECTS: dict[str, Dialect] = {dialect.path: dialect for dialect in (CHAT, RESPONSES, MESSAGES)}
"""By the path that requests for an answer are posted to."""
COUNT_TOKENS = f"{MESSAGES.path}/count_tokens"
"""Takes the body of `MESSAGES`, answered by `MESSAGES.count`."""
MODELS = "/v1/models"


def of_path(path: str) -> Dialect:
    """Return the dialect that speaks at a path or above it; that of chat completions for any other, errors included."""
    for own, dialect in DIALECTS.items():
        if path == own or path.startswith(f"{own}/"):
            return dialect
    return CHAT
