"""A judge behind an OpenAI-compatible endpoint: one chat completion per sample, its whole message the verdict.

A question changes nothing on the other side, so asking twice is safe, only paid twice. The key comes from the
environment, never from the settings, and stands in no message or record.
"""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Sequence
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from types import TracebackType
from typing import Any

import httpx
import msgspec
from pydantic import Field

from trainer.errors import ConfigError
from trainer.reward.base import Answer, NoAnswer, RewardContext, RewardSpec, Sample
from trainer.reward.prompt import PROMPT_VERSION, JudgeForm, judged, messages
from trainer.reward.verdict import verdict_schema

__all__ = ["WORKER", "Judge", "JudgeOptions"]

_AGAIN = {408, 409, 425, 429}
"""Beside all of 500 and above: the same question may be answered later."""
_REFUSED = {401, 402, 403, 404, 405}
"""No sample will ever be judged: the key, the account, the model or the URL is wrong."""
_HEADER = re.compile(r"[!-~]*")
_MAX_REPLY_BYTES = 4 << 20
_MAX_WAIT_S = 60.0
"""A `Retry-After` beyond this is cut: the attempts are bounded, not the patience of each."""


class JudgeOptions(JudgeForm):
    """Where the judge is."""

    url: str = Field(pattern=r"^https?://[^/\s]+(/\S*)?$")
    """Base URL of an OpenAI-compatible API, such as http://127.0.0.1:8000/v1."""
    model: str = Field(min_length=1)
    """The name under which the endpoint serves the judge."""
    key_env: str = "OPENAI_API_KEY"
    """Environment variable that holds the key; one that is not set sends none."""


class _Message(msgspec.Struct):
    content: str | None = None


class _Choice(msgspec.Struct):
    message: _Message
    finish_reason: str | None = None


class _Usage(msgspec.Struct):
    prompt_tokens: int = 0
    completion_tokens: int = 0


class _Completion(msgspec.Struct):
    choices: list[_Choice]
    model: str = ""
    usage: _Usage | None = None


class Judge:
    """A `RewardWorker` that asks one question per call over one pool of connections."""

    batch = 1
    alone = False

    def __init__(self, options: JudgeOptions, context: RewardContext) -> None:
        self._options = options
        self._key = _key(options.key_env)
        self._url = _checked(options.url.rstrip("/") + "/chat/completions")
        self._limit_s = context.time_limit_s

    async def __aenter__(self) -> Judge:
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=64)  # the router bounds them
        headers = {"Authorization": f"Bearer {self._key}"} if self._key else {}
        self._client = httpx.AsyncClient(timeout=self._limit_s, limits=limits, headers=headers)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._client.aclose()

    async def reward(self, samples: Sequence[Sample], attempt: int) -> list[Answer | NoAnswer]:
        """Ask about each sample. Raise `ConfigError` where the endpoint refuses us altogether."""
        return list(await asyncio.gather(*map(self._ask, samples)))

    async def _ask(self, sample: Sample) -> Answer | NoAnswer:
        try:
            async with self._client.stream("POST", self._url, json=self._question(sample)) as reply:
                body = await _body(reply)
        except httpx.HTTPError as error:  # no connection, one that was cut, a reply that is not HTTP
            what = str(error) or type(error).__name__
            return NoAnswer("reward_unanswered", f"no answer from {self._url}: {what}.", again=True)
        if reply.status_code != 200:
            return self._declined(reply, body)
        return self._read(body, sample)

    def _question(self, sample: Sample) -> dict[str, Any]:
        options = self._options
        schema = verdict_schema(options.gives, len(sample.trajectory.turns))
        return {
            "model": options.model,
            "messages": [{"role": m.role, "content": m.content} for m in messages(sample, options)],
            "temperature": options.temperature,
            "max_tokens": options.max_tokens,
            "response_format": {
                "type": "json_schema",
                "json_schema": {"name": "verdict", "strict": True, "schema": schema},
            },
        }

    def _declined(self, reply: httpx.Response, body: bytes) -> NoAnswer:
        """Return why there is no answer. Raise `ConfigError` where there never will be one."""
        status = reply.status_code
        said = body[:300].decode(errors="replace").strip()
        if self._key:
            said = said.replace(self._key, "***")
        if status in _REFUSED or 300 <= status < 400:
            raise ConfigError(
                f"the judge at {self._url} refused with status {status}: {said!r}. Check the reward worker's options url "
                f"and model ({self._options.model!r}), and the key in the environment variable {self._options.key_env} "
                f"({'set' if self._key else 'not set'}); then continue with --resume."
            )
        again = status in _AGAIN or status >= 500
        message = f"{self._url} answered with status {status}: {said!r}."
        return NoAnswer("reward_unanswered", message, again, wait_s=_retry_after_s(reply) if again else 0.0)

    def _read(self, body: bytes, sample: Sample) -> Answer | NoAnswer:
        try:
            reply = msgspec.json.decode(body, type=_Completion)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            text = body[:2000].decode(errors="replace")
            message = f"{self._url} answered with what is no chat completion ({error}): {text[:120]!r}."
            return NoAnswer("reward_unreadable", message, again=True, raw=text)
        choice = reply.choices[0] if reply.choices else _Choice(_Message())
        usage = reply.usage or _Usage()
        return judged(
            choice.message.content or "",
            sample,
            self._options,
            by=reply.model or self._options.model,
            again=True,
            tokens=(usage.prompt_tokens, usage.completion_tokens),
            cut=choice.finish_reason == "length",
        )


def _key(variable: str) -> str:
    """Return the key. Raise `ConfigError` for one that no header can carry, which HTTP's own errors would print."""
    key = os.environ.get(variable, "")
    if not _HEADER.fullmatch(key):
        raise ConfigError(
            f"the key in the environment variable {variable} cannot be sent: expected printable ASCII without spaces, got "
            f"{len(key)} characters with others among them, such as a line end. Set it anew."
        )
    return key


def _checked(url: str) -> str:
    try:
        httpx.URL(url)
    except httpx.InvalidURL as error:
        raise ConfigError(
            f"the judge's url is none: {error}, got {url!r}. Set it like http://127.0.0.1:8000/v1."
        ) from error
    return url


async def _body(reply: httpx.Response) -> bytes:
    """Read a reply to its end, or to what is more than any verdict takes."""
    parts = bytearray()
    async for part in reply.aiter_bytes():
        parts += part
        if len(parts) > _MAX_REPLY_BYTES:
            break
    return bytes(parts)


def _retry_after_s(reply: httpx.Response) -> float:
    """Return what `Retry-After` asks for (RFC 9110, section 10.2.3: seconds or a date), 0 where it does not."""
    value = reply.headers.get("Retry-After", "")
    try:
        if value.isascii() and value.isdigit():
            wait_s = float(value)
        else:
            wait_s = (parsedate_to_datetime(value) - datetime.now(UTC)).total_seconds()
    except (ValueError, TypeError):  # no date, or one without a time zone
        return 0.0
    return min(max(wait_s, 0.0), _MAX_WAIT_S)


WORKER = RewardSpec(
    name="judge",
    summary="a language model behind an OpenAI-compatible endpoint",
    version=PROMPT_VERSION,
    options=JudgeOptions,
    build=Judge,
)
