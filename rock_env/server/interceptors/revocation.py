"""Ends the streams whose token was revoked, has expired, lost its scope or was replaced, about a second after that.

Told by the guard at the door which stream runs by which token. One look a second at the token file serves the whole
server, however many streams there are; a sandbox's own tokens are looked at when its record changes. While the file
cannot be read nobody new gets in, and what runs goes on: a file that is being repaired must not end everybody's work.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from rock_env.errors import RockError, Unauthenticated, Unavailable
from rock_env.lifecycle import SandboxRecord
from rock_env.security.auth import Scope, Token, utc
from rock_env.security.token_file import TokenFile

__all__ = ["ApiHolder", "BoxHolder", "Holder", "Revocation"]

_LOOK_S = 1.0


@dataclass(frozen=True, slots=True)
class ApiHolder:
    """An API token, and the scope that its stream needs."""

    token_id: str
    secret_sha256: bytes
    scope: Scope


@dataclass(frozen=True, slots=True)
class BoxHolder:
    """A token of one sandbox."""

    sandbox_id: str
    secret_sha256: bytes


Holder = ApiHolder | BoxHolder
_Tasks = set[asyncio.Task[Any]]


class Revocation:
    """The streams of one server by the token that each was admitted with; `end` ends one with an error."""

    def __init__(self, tokens: TokenFile | None, end: Callable[[asyncio.Task[Any], RockError], None]) -> None:
        self._tokens = tokens
        self._end = end
        self._api: dict[ApiHolder, _Tasks] = {}
        self._boxes: dict[str, dict[BoxHolder, _Tasks]] = {}

    def note(self, holder: Holder | None, task: asyncio.Task[Any] | None) -> None:
        """Remember a stream by the task of its call, until that is done."""
        if holder is None or task is None:
            return
        if isinstance(holder, ApiHolder):
            _remember(self._api, holder, task)
            return
        of_box = self._boxes.setdefault(holder.sandbox_id, {})
        _remember(of_box, holder, task)
        task.add_done_callback(lambda _: None if of_box else self._forget_box(holder.sandbox_id, of_box))

    def _forget_box(self, sandbox_id: str, emptied: dict[BoxHolder, _Tasks]) -> None:
        if self._boxes.get(sandbox_id) is emptied:
            del self._boxes[sandbox_id]

    def changed(self, record: SandboxRecord) -> None:
        """End the streams of those tokens of a sandbox that were replaced; with the sandbox its streams end anyhow."""
        of_box = self._boxes.get(record.id)
        if not of_box:
            return
        valid = {token.secret_sha256 for token in record.tokens}
        for holder, tasks in tuple(of_box.items()):
            if valid and holder.secret_sha256 not in valid:
                self._end_all(
                    tasks,
                    f"the token of sandbox {record.id} that this stream was opened with was replaced by newer ones. "
                    "Ask for a new one with IssueToken.",
                )

    async def watch(self) -> None:
        """Look at the token file, once a second, for ever."""
        while self._tokens is not None:
            await asyncio.sleep(_LOOK_S)
            self.look()

    def look(self) -> None:
        """End the streams of the API tokens that open them no more."""
        if not self._api or self._tokens is None:
            return
        try:
            tokens = self._tokens.tokens()
        except Unavailable:
            return  # it was logged when it began
        for holder, tasks in tuple(self._api.items()):
            why = _lost(holder, tokens)
            if why:
                self._end_all(
                    tasks,
                    f"API token {holder.token_id} {why} while this stream ran. Open it again with a valid one.",
                )

    def _end_all(self, tasks: _Tasks, message: str) -> None:
        for task in tuple(tasks):
            self._end(task, Unauthenticated(message))


def _remember(streams: dict[Any, _Tasks], holder: Holder, task: asyncio.Task[Any]) -> None:
    streams.setdefault(holder, set()).add(task)

    def forget(_: object) -> None:
        tasks = streams[holder]
        tasks.discard(task)
        if not tasks:
            del streams[holder]

    task.add_done_callback(forget)


def _lost(holder: ApiHolder, tokens: Mapping[str, Token]) -> str:
    """Return why a token opens its stream no more; empty while it does."""
    token = tokens.get(holder.token_id)
    if token is None or token.secret_sha256 != holder.secret_sha256:
        return "was revoked"
    if token.expires_at is not None and token.expires_at <= time.time():
        return f"expired at {utc(token.expires_at)}"
    return "" if holder.scope in token.scopes else f"lost the scope {holder.scope}"
