"""The API of a cluster as this package needs it: calls on pods, one stream of changes, its errors as ours.

Used by the `kubernetes` backend's modules. It speaks HTTP by `httpx` on the event loop: no thread per call, and no
other package. It knows nothing of sandboxes.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Mapping
from typing import Any

import httpx

from rock_env.backends.kubernetes.access import Access
from rock_env.errors import (
    FailedPrecondition,
    InfraError,
    InvalidArgument,
    ResourceExhausted,
    RockError,
    Unavailable,
)

__all__ = ["Api", "ApiRefusal"]

_CALL_S = 60.0
_CONNECT_S = 10.0
"""For TCP and TLS each: far more than a network needs. Where nothing comes back nobody is asked again."""
_WATCH_S = 300
"""How long the API server keeps one stream of changes open, in seconds."""
_WRITES = 32
"""Creates and deletes that are under way at a time."""
_TRIES = 4
_BUSY = (429, 502, 503, 504)
_RETRY_S = 10.0


class ApiRefusal(InfraError):
    """The API answered a call with an error; `status` is its HTTP status, `reason` its word for it."""

    status = 0
    reason = ""


class Api:
    """One cluster's API, seen from the event loop; close it with `close`."""

    def __init__(self, access: Access) -> None:
        self.access = access
        self._turn = asyncio.Semaphore(_WRITES)
        self._client = httpx.AsyncClient(
            base_url=access.url,
            verify=access.tls,
            timeout=httpx.Timeout(_CALL_S, connect=_CONNECT_S),
            limits=httpx.Limits(max_connections=_WRITES + 8, max_keepalive_connections=4),
            trust_env=False,
        )

    async def close(self) -> None:
        """Close every connection; running calls fail."""
        await self._client.aclose()

    async def call(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, str] | None = None,
        body: Mapping[str, Any] | None = None,
    ) -> Any:
        """Make one call and return its JSON; where the API is busy or cut off it is made again, up to four times.

        Raise `ApiRefusal` with the API's own words, `ResourceExhausted` for a quota, `InvalidArgument` for what the cluster
        does not admit, `FailedPrecondition` without the right to it, and `Unavailable` when nobody answers.
        """
        for attempt in range(_TRIES):
            last = attempt == _TRIES - 1
            try:
                async with self._turn:
                    response = await self._client.request(
                        method, path, params=params, json=body, headers=self._headers()
                    )
            except httpx.TransportError as error:
                if last or isinstance(error, httpx.ConnectTimeout):
                    raise self._unreachable(error) from error
                wait_s = 0.2 * 2**attempt
            else:
                if response.status_code not in _BUSY or last:
                    return _answer(response.status_code, response.content)
                wait_s = _retry_after(response, 0.2 * 2**attempt)
            await asyncio.sleep(wait_s)
        raise AssertionError

    async def watch(self, path: str, params: Mapping[str, str], since: str) -> AsyncIterator[dict[str, Any]]:
        """Yield changes since a version of the collection, until the API ends the stream after some minutes.

        Raise `ApiRefusal` with status 410 where it no longer has that version, and `Unavailable` when it is cut off.
        """
        asked = {
            **params,
            "watch": "1",
            "allowWatchBookmarks": "true",
            "resourceVersion": since,
            "timeoutSeconds": str(_WATCH_S),
        }
        timeout = httpx.Timeout(_CALL_S, connect=_CONNECT_S, read=_WATCH_S + _CALL_S)
        try:
            async with self._client.stream(
                "GET", path, params=asked, headers=self._headers(), timeout=timeout
            ) as response:
                if response.status_code != 200:
                    _answer(response.status_code, await response.aread())
                async for line in response.aiter_lines():
                    event = _change(line)
                    if event["type"] == "ERROR":
                        status = event["object"]
                        raise _refusal(int(status.get("code") or 0), status)
                    yield event
        except httpx.TransportError as error:
            raise self._unreachable(error) from error

    def _headers(self) -> dict[str, str]:
        token = self.access.token()
        return {"Authorization": f"Bearer {token}"} if token else {}

    def _unreachable(self, error: Exception) -> Unavailable:
        return Unavailable(
            f"the API of the Kubernetes cluster does not answer at {self.access.url}: {str(error) or type(error).__name__}. "
            "Sandboxes that run go on. See whether `kubectl get --raw /readyz` answers.",
            retry_after_s=_RETRY_S,
        )


def _change(line: str) -> dict[str, Any]:
    """Read one change. Raise `Unavailable` for a part of one: what is between here and the API may end in the middle."""
    try:
        event: dict[str, Any] = json.loads(line)
        if event["type"] != "ERROR":
            event["object"]["metadata"]["resourceVersion"]
    except (ValueError, KeyError, TypeError) as error:
        raise Unavailable(
            f"the API of the Kubernetes cluster cut a change off, or it is none: {type(error).__name__}"
        ) from error
    return event


def _retry_after(response: httpx.Response, otherwise: float) -> float:
    given = response.headers.get("Retry-After", "")
    return min(float(given), _RETRY_S) if given.isdecimal() else otherwise


def _answer(status: int, content: bytes) -> Any:
    try:
        said = json.loads(content) if content else {}
    except ValueError:
        said = {"message": content[:500].decode(errors="replace")}
    if status >= 400:
        raise _refusal(status, said if isinstance(said, dict) else {})
    return said


def _refusal(status: int, said: Mapping[str, Any]) -> RockError:
    message = str(said.get("message") or "no reason given")
    if status == 403 and "exceeded quota" in message:
        return ResourceExhausted(
            f"the sandboxes' namespace is full: {message}. Wait until others end, or raise its ResourceQuota "
            "(sandboxes.quota of the chart).",
            retry_after_s=_RETRY_S,
        )
    if status == 403 and (
        "violates PodSecurity" in message or re.search(r"(maximum|minimum) .* usage per", message)
    ):
        return InvalidArgument(f"the cluster does not admit such a sandbox: {message}")
    if status in (401, 403):
        return FailedPrecondition(
            f"the cluster refuses this server (status {status}): {message}. It needs create, delete, get, list and watch "
            "on pods of the sandboxes' namespace (rbac.create of the chart)."
        )
    if status in (400, 422):
        return InvalidArgument(f"the cluster does not take such a sandbox: {message}")
    refusal = ApiRefusal(f"the Kubernetes API refused with status {status}: {message}")
    refusal.status, refusal.reason = status, str(said.get("reason") or "")
    return refusal
