"""Builds: one run of the engine's builder, its log with offsets for any number of readers, and how it ended.

Used by the registry. The classic builder's API, spoken to over the engine's socket so that a build can be cancelled
and its context streamed. A build belongs to the server, not to the call that asked for it.
"""

from __future__ import annotations

import asyncio
import json
import re
import secrets
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import httpx

from rock_env.backends.docker.engine import API, Engine
from rock_env.errors import InfraError, InvalidArgument, RockError, Unavailable, of_full_disk

if TYPE_CHECKING:
    from rock_env.server.images.context import BuildContext
    from rock_env.server.images.records import ImageRecord

__all__ = ["BuildLimits", "BuildRun", "BuildWish", "build_image", "maker_of", "pull_image"]

_BUILD = "build-"
_KEPT_LOG_BYTES = 4 << 20
"""How much of a log is kept for readers that come late; what they are too late for is said."""
MOST_LOG_CHARS = 256 << 20
"""Of all that a build says: it is read on the event loop."""
_LAST_LINES = 12
_LAST_CHARS = 1200
_STEP_CHARS, _FAILURE_CHARS = 400, 1500
"""What of the log an error quotes: an error crosses the wire in a header."""
_MOST_STAGES = 64
"""How many leftovers are looked at: a build's commands can write as if there were more."""
_PROXIES = frozenset(
    name
    for kind in ("http", "https", "ftp", "no", "all")
    for name in (f"{kind}_proxy", f"{kind}_proxy".upper())
)
"""Arguments that every RUN sees and that the builder's cache leaves out."""
_STEP = re.compile(r"Step \d+/\d+ : .*")
_LAYER = re.compile(r" ---> ([0-9a-f]{12})")
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")


@dataclass(frozen=True, slots=True)
class BuildWish:
    """What a Register asks for."""

    name: str
    dockerfile: str = "Dockerfile"
    build_args: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class BuildLimits:
    """What one build may use."""

    memory_bytes: int = 4 << 30
    timeout_s: float = 3600.0
    network: str = "default"
    """The engine's network of RUN steps: "default", or "none" where what is built is not trusted to reach out."""


@dataclass(eq=False)
class BuildRun:
    """One build: running until `image` or `error` is set."""

    tenant: str
    name: str
    context_digest: str
    maker: str = ""
    """How the ids of what this server makes begin, where other servers of its store ask it for them."""
    id: str = field(default="", init=False)
    image: ImageRecord | None = None
    error: RockError | None = None
    began_at: float = 0.0
    """When the engine began it, in seconds since the epoch."""
    leftovers: list[str] = field(default_factory=list)
    """Short ids of images that it may have made on the way and nothing refers to: of other stages, or of a build that
    failed. They are read from its log, in which its commands write as well."""
    _log: bytearray = field(default_factory=bytearray)
    _dropped: int = 0
    _more: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        self.id = f"{_BUILD}{self.maker}{secrets.token_hex(8)}"

    @property
    def ended(self) -> bool:
        """Return whether it is over."""
        return self.image is not None or self.error is not None

    def write(self, data: bytes) -> None:
        """Append to the log."""
        self._log += data
        excess = len(self._log) - _KEPT_LOG_BYTES
        if excess > 0:
            del self._log[:excess]
            self._dropped += excess
        self._wake()

    def end(self, outcome: ImageRecord | RockError) -> None:
        """Say how it ended."""
        if isinstance(outcome, RockError):
            self.error = outcome
        else:
            self.image = outcome
        self._wake()

    async def read(self, offset: int) -> AsyncGenerator[tuple[int, bytes]]:
        """Yield (offset, data) of the log from an offset on, until the build ends. Raise `InvalidArgument` beyond it."""
        if offset > self._dropped + len(self._log):
            raise InvalidArgument(
                f"offset {offset} of {self.id} is not written yet: it has {self._dropped + len(self._log)} bytes"
            )
        while True:
            more = self._more
            start = max(offset - self._dropped, 0)
            data = bytes(self._log[start:])
            if data:
                begin = self._dropped + start
                offset = begin + len(data)
                yield begin, data
            elif self.ended:
                return
            else:
                await more.wait()

    def _wake(self) -> None:
        former, self._more = self._more, asyncio.Event()
        former.set()


def maker_of(build_id: str) -> str:
    """Return how ids of the server that runs a build begin; no server's for an id that is none."""
    return build_id.removeprefix(_BUILD)[:-16]


async def build_image(
    engine: Engine,
    context: BuildContext,
    *,
    dockerfile: str,
    build_args: Mapping[str, str],
    limits: BuildLimits,
    build: BuildRun,
    shared: bool = False,
) -> str:
    """Run a build and return the image's id; its log and leftovers go to `build`. `shared`: other tenants build there, too.

    Raise `InvalidArgument`, with the failing step and the last lines, if it fails.
    """
    params = {
        "version": "1",
        "dockerfile": dockerfile,
        "buildargs": json.dumps(dict(build_args)),
        "labels": json.dumps({"rock.image": "1"}),
        "rm": "1",
        "forcerm": "1",
        "memory": str(limits.memory_bytes),
        "memswap": str(limits.memory_bytes),
        "networkmode": limits.network,
    }
    if shared and not _PROXIES.isdisjoint(build_args):
        params["nocache"] = "1"  # steps of another proxy count as the same ones
    reading = _Reading(build)
    try:
        async with (
            asyncio.timeout(limits.timeout_s),
            aclosing(_messages(engine, "/build", params, context.blocks())) as messages,
        ):
            async for message in messages:
                reading.take(message)
    except TimeoutError as error:
        raise InvalidArgument(
            f"the build ran longer than {limits.timeout_s:g} s and was ended{reading.where}.{reading.quoted}"
        ) from error
    return reading.result()


async def pull_image(engine: Engine, image: str, *, limits: BuildLimits, build: BuildRun) -> None:
    """Have the engine get an image from its registry; what it says goes to the log. Raise `InvalidArgument` if it cannot."""
    whole = image if "@" in image or ":" in image.rpartition("/")[2] else f"{image}:latest"
    reading = _Reading(build)
    try:
        async with (
            asyncio.timeout(limits.timeout_s),
            aclosing(_messages(engine, "/images/create", {"fromImage": whole})) as messages,
        ):
            async for message in messages:
                reading.take(message)
    except TimeoutError as error:
        raise InvalidArgument(
            f"the engine took longer than {limits.timeout_s:g} s to get the image {image!r}."
        ) from error
    except InfraError as error:  # a registry that does not answer
        raise InvalidArgument(f"the engine cannot get the image {image!r}: {error.message}") from error
    if full := of_full_disk(InfraError(reading.failure)):
        raise full
    if reading.failure:
        raise InvalidArgument(f"the engine cannot get the image {image!r}: {reading.failure}.")


async def _messages(
    engine: Engine, path: str, params: Mapping[str, str], content: AsyncIterator[bytes] | None = None
) -> AsyncGenerator[Mapping[str, Any]]:
    """Yield what the engine says while it works on a call of its builder's."""
    transport = httpx.AsyncHTTPTransport(uds=str(engine.socket))
    try:
        async with (
            httpx.AsyncClient(transport=transport, base_url=f"http://docker/{API}", timeout=None) as client,
            client.stream(
                "POST",
                path,
                params=params,
                content=content,
                headers={"Content-Type": "application/x-tar"},
            ) as response,
        ):
            if not response.is_success:
                raise _refused(response.status_code, (await response.aread()).decode(errors="replace"))
            async for line in response.aiter_lines():
                if line.strip():
                    yield json.loads(line)
    except httpx.TransportError as error:
        raise Unavailable(
            f"the Docker engine left a build: {error or type(error).__name__}. Try again."
        ) from error
    except json.JSONDecodeError as error:
        raise InfraError(f"the Docker engine's builder said what is no JSON: {error}") from error


class _Reading:
    """What the builder says, as it says it."""

    def __init__(self, build: BuildRun) -> None:
        self._build = build
        self._written = 0
        self._base = True
        self._image = ""
        self._step = ""
        self.failure = ""
        self._last: deque[str] = deque(maxlen=_LAST_LINES)

    def take(self, message: Mapping[str, Any]) -> None:
        text = str(message.get("stream", "")) or _progress(message)
        if "error" in message:
            text = str(message["error"]).strip() + "\n"
            self.failure = _short(text.strip(), _FAILURE_CHARS)
        if text:
            self._build.write(text.encode())
            self._written += len(text)
            if self._written > MOST_LOG_CHARS:
                raise InvalidArgument(
                    f"the build wrote more than {MOST_LOG_CHARS} characters and was ended{self.where}.{self.quoted}"
                )
        # The builder says a step in a message of its own, on one line; of what commands write the end is enough.
        looked_at = text.partition("\n")[0] if text.startswith("Step ") else text[-_LAST_CHARS:]
        for line in _COLOURS.sub("", looked_at).splitlines():
            if _STEP.match(line):
                self._step = _short(line, _STEP_CHARS)
                self._base = line.partition(" : ")[2].upper().startswith("FROM ")
                if self._base and len(self._build.leftovers) < _MOST_STAGES:
                    self._build.leftovers.append("")  # of this stage, so far
            elif (layer := _LAYER.fullmatch(line)) and not self._base and self._build.leftovers:
                self._build.leftovers[-1] = layer[1]
            if line.strip():
                self._last.append(line)
        self._image = str((message.get("aux") or {}).get("ID", "")) or self._image

    @property
    def where(self) -> str:
        return f" at `{self._step}`" if self._step else ""

    @property
    def quoted(self) -> str:
        lines = "\n".join(self._last)[-_LAST_CHARS:]
        return f" Its last lines:\n{lines}" if lines else ""

    def result(self) -> str:
        if full := of_full_disk(InfraError(self.failure)):  # of a command it says no more than its status
            raise full
        if self.failure:
            raise InvalidArgument(f"the build failed{self.where}: {self.failure}.{self.quoted}")
        del self._build.leftovers[-1:]  # the image itself
        if not self._image:
            raise InfraError(f"the Docker engine's builder ended without an image{self.where}.{self.quoted}")
        return self._image


def _short(text: str, most: int) -> str:
    """Return both ends of a long text: the builder repeats a step in what it says of its failure."""
    return text if len(text) <= most else f"{text[: most // 2]} … {text[-most // 2 :]}"


def _progress(message: Mapping[str, Any]) -> str:
    """Return a line for what a pull says; its progress bars are left out."""
    if "status" not in message or "progress" in message:
        return ""
    layer = f"{message['id']}: " if "id" in message else ""
    return f"{layer}{message['status']}\n"


def _refused(status: int, text: str) -> RockError:
    try:
        said = str(json.loads(text)["message"])
    except (ValueError, KeyError, TypeError):
        said = text.strip()[:500]
    if status < 500 or "dockerfile" in said.lower():  # the engine answers 500 to a Dockerfile it cannot parse
        return InvalidArgument(f"the build was refused: {said}.")
    return InfraError(f"the Docker engine failed a build with status {status}: {said}.")
