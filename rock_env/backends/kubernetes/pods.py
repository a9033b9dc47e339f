"""The pods of one server's store in a namespace, kept current by one stream of changes for all of them.

Used by the `kubernetes` backend only. Nothing is asked for repeatedly: whoever waits for a pod is woken by its change.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from rock_env.backends.kubernetes.api import Api, ApiRefusal
from rock_env.backends.kubernetes.reasons import end_of, is_over
from rock_env.errors import FailedPrecondition, RockError

__all__ = ["EXPLAIN_S", "Pods"]

EXPLAIN_S = 5.0
"""How long the news of an ended pod may take; then the reason is given without it."""
_RETRY_S = 1.0
_MOST_GONE = 4096

T = TypeVar("T")
Pod = Mapping[str, Any]

log = logging.getLogger(__name__)


class Pods:
    """Pods by name. `selector` says which labels they carry."""

    def __init__(self, api: Api, namespace: str, selector: str) -> None:
        self._api = api
        self._path = f"/api/v1/namespaces/{namespace}/pods"
        self._params = {"labelSelector": selector}
        self._now: dict[str, Pod] = {}
        self._last: dict[str, Pod] = {}
        self._gone: deque[str] = deque(maxlen=_MOST_GONE)
        self._waiting: dict[str, list[asyncio.Future[None]]] = {}
        self._opened: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def run(self) -> None:
        """Follow the changes until cancelled; an API that went away is asked again every second."""
        since, told = "", False
        while True:
            try:
                if not since:
                    since = self._take_all(await self.list())
                if not self._opened.done():
                    self._opened.set_result(None)
                told = False
                async for event in self._api.watch(self._path, self._params, since):
                    since = event["object"]["metadata"]["resourceVersion"]
                    self._take(event["type"], event["object"])
                continue
            except ApiRefusal as refusal:
                since = ""  # also where it no longer has that version
                if refusal.status == 410:
                    continue
                error: RockError = refusal
            except RockError as other:
                error = other
            if not told:  # once for each time the API goes away
                log.warning("pods cannot be followed for now: %s", error)
            told = True
            if isinstance(error, FailedPrecondition) and not self._opened.done():
                self._opened.set_exception(error)
            await asyncio.sleep(_RETRY_S)

    async def opened(self) -> None:
        """Wait until the pods are known. Raise `FailedPrecondition` without the right to see them."""
        await asyncio.shield(self._opened)

    async def list(self) -> Any:
        """Ask for all pods, with the version of the whole."""
        return await self._api.call("GET", self._path, params=self._params)

    def get(self, name: str) -> Pod | None:
        """Return a pod as it was last heard of; None if there is none."""
        return self._now.get(name)

    def expect(self, pod: Pod) -> None:
        """Note a pod that was just made, and keep what becomes of it until `forget`."""
        name, uid = pod["metadata"]["name"], pod["metadata"]["uid"]
        known = self._now.get(name)
        if (known is None or known["metadata"]["uid"] != uid) and uid not in self._gone:
            self._now[name] = pod
        self._last[name] = self._now.get(name, pod)

    def forget(self, name: str) -> None:
        """Drop what is kept of a pod that is gone."""
        self._last.pop(name, None)

    async def until(self, name: str, look: Callable[[Pod | None], T | None]) -> T:
        """Wait until `look` returns something for the pod, None where there is none, and return that."""
        while (seen := look(self._now.get(name))) is None:
            changed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.setdefault(name, []).append(changed)
            try:
                await changed
            finally:
                if changed in (waiting := self._waiting.get(name, [])):
                    waiting.remove(changed)
                    if not waiting:
                        del self._waiting[name]
        return seen

    async def ended(self, name: str, uid: str, *, within_s: float) -> bool:
        """Wait until a pod is gone or its containers have ended; return whether that came in time."""

        def over(now: Pod | None) -> bool | None:
            return True if now is None or now["metadata"]["uid"] != uid or is_over(now) else None

        try:
            async with asyncio.timeout(within_s):
                return await self.until(name, over)
        except TimeoutError:
            return False

    async def explain(self, name: str) -> str:
        """Return why a pod ended, which somebody noticed already; without news of it the reason is a general one."""
        try:
            async with asyncio.timeout(EXPLAIN_S):
                return await self.until(name, lambda pod: self._end(name, pod))
        except TimeoutError:
            return "the connection to the sandbox ended, and the cluster does not say why: its pod may run on"

    def _end(self, name: str, pod: Pod | None) -> str | None:
        if pod is not None:
            return (end_of(pod) if is_over(pod) or pod["metadata"].get("deletionTimestamp") else "") or None
        last = self._last.get(name)
        if last is None:
            return end_of(None)
        gone = {**last, "metadata": {**last["metadata"], "deletionTimestamp": "known"}}
        return end_of(gone)

    def _take_all(self, listed: Any) -> str:
        fresh = {pod["metadata"]["name"]: pod for pod in listed["items"]}
        for name in self._now.keys() - fresh.keys():
            self._take("DELETED", self._now[name])
        for pod in fresh.values():
            self._take("MODIFIED", pod)
        return str(listed["metadata"]["resourceVersion"])

    def _take(self, kind: str, pod: Pod) -> None:
        if kind == "BOOKMARK":
            return
        name, uid = pod["metadata"]["name"], pod["metadata"]["uid"]
        if kind == "DELETED":
            self._gone.append(uid)
        if self._last.get(name, pod)["metadata"]["uid"] != uid:
            return  # of an earlier pod of that name
        if kind == "DELETED":
            self._now.pop(name, None)
        else:
            self._now[name] = pod
        if name in self._last:
            self._last[name] = pod
        for changed in self._waiting.pop(name, ()):
            if not changed.done():
                changed.set_result(None)
