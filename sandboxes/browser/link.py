"""The host's end of a browser: starts the driver in the box, sends it one request at a time and awaits its line.

Every wait has a bound. A driver that ends, is late or talks out of turn is an `InfraError`: never the agent's fault.
"""

from __future__ import annotations

import asyncio
import io
import json
import logging
import tarfile
from collections.abc import AsyncIterator, Mapping
from typing import Any

from rock_env.errors import InfraError, NotFound, RockError
from rock_env.sandbox import READY_KEY, READY_LOG_BYTES, CommandEnd, Sandbox
from sandboxes.browser.box.driver import picture_name
from sandboxes.browser.reply import End, LineReader, Reply, read_end, read_reply

__all__ = ["DRIVER", "FOLDER", "Link"]

log = logging.getLogger(__name__)

DRIVER = ("python3", "-m", "sandboxes.browser.box.driver")
"""The ready command of the environment's boxes."""
FOLDER = "browser"
"""The folder of the site's files, in the box's working folder."""
_READY = b'{"ready": true}'
_START_S = 75.0
_ANSWER_S = 75.0
_RECORD_S = 20.0
_LAST_WORDS = 600
_GET_IT = (
    "The environment browser needs Debian's chromium (`apt-get install chromium libatomic1`) and `pip install "
    "'ale-rl[browser]'` where the sandbox server runs."
)


class Link:
    """One driver in one box. It keeps no connection between requests, so any process may hold it."""

    def __init__(self, process: str) -> None:
        self._process = process
        self._asked = 0
        self._read, self._read_errors = 0, 0

    @classmethod
    async def start(
        cls, box: Sandbox, request: Mapping[str, Any], files: Mapping[str, bytes]
    ) -> tuple[Link, Reply]:
        """Place `files`, start the driver where it does not run already, and return what the first page shows."""
        try:
            link = cls(await box.start_process(DRIVER, key=READY_KEY, log_bytes=READY_LOG_BYTES))
        except NotFound as error:
            raise InfraError(f"the browser's driver does not start: {error}") from error
        await _place(box, files)
        first = await link._in_time(box, b"", _START_S)
        if first != _READY:
            raise InfraError(f"the browser's driver wrote {first[:80]!r} instead of that it is ready.")
        return link, await link.ask(box, {"do": "start", "folder": FOLDER, **request}, timeout_s=_START_S)

    @property
    def picture(self) -> str:
        """Return the path in the sandbox of the picture after the last request, where pictures were asked for."""
        return f"{FOLDER}/{picture_name(self._asked)}"

    async def ask(self, box: Sandbox, request: Mapping[str, Any], *, timeout_s: float = _ANSWER_S) -> Reply:
        """Send one request and return its reply. Raise `InfraError` where none comes in time."""
        return read_reply(await self._answer(box, request, timeout_s), expected=self._asked)

    async def end(self, box: Sandbox) -> End:
        """End the episode and return what it came to. Raise `InfraError` where that cannot be known."""
        return read_end(await self._answer(box, {"do": "end"}, _ANSWER_S), expected=self._asked)

    async def record(self, box: Sandbox) -> bool:
        """Have what was recorded of the episode written, after its end; return whether there was an answer in time."""
        try:
            await self._answer(box, {"do": "record"}, _RECORD_S)
        except RockError as error:
            log.info("no record of an episode in a browser: %s", error)
            return False
        return True

    async def _answer(self, box: Sandbox, request: Mapping[str, Any], timeout_s: float) -> bytes:
        self._asked += 1
        line = json.dumps({"id": self._asked, **request}).encode() + b"\n"
        return await self._in_time(box, line, timeout_s)

    async def _in_time(self, box: Sandbox, line: bytes, timeout_s: float) -> bytes:
        try:
            async with asyncio.timeout(timeout_s):
                return await self._exchange(box, line)
        except TimeoutError as error:
            raise InfraError(f"the browser's driver did not answer within {timeout_s:g} s.") from error

    async def _exchange(self, box: Sandbox, line: bytes) -> bytes:
        reader = LineReader()
        errors = b""
        listening = box.process_logs(
            self._process, stdout_offset=self._read, stderr_offset=self._read_errors, follow=True
        )
        async with listening as command:
            command.write_stdin(line)
            async for event in command.events():
                if isinstance(event, CommandEnd):
                    said = errors.decode(errors="replace").strip()
                    raise InfraError(f"the browser's driver ended ({event.exit_code}): {said!r}. {_GET_IT}")
                if event.stream == "stderr":
                    self._read_errors = event.offset + len(event.data)
                    errors = (errors + bytes(event.data))[-_LAST_WORDS:]
                    continue
                if event.offset != self._read:
                    raise InfraError("part of what the browser's driver wrote is lost.")
                self._read += len(event.data)
                answer = reader.feed(bytes(event.data))
                if answer is not None:
                    return answer
        raise InfraError("the browser's driver cannot be listened to any more.")


async def _place(box: Sandbox, files: Mapping[str, bytes]) -> None:
    if len(files) == 1:
        ((name, content),) = files.items()
        await box.write_file(f"{FOLDER}/{name}", content)
    else:
        await box.upload(FOLDER, _once(_tar(files)))


def _tar(files: Mapping[str, bytes]) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as tar:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return packed.getvalue()


async def _once(content: bytes) -> AsyncIterator[bytes | memoryview]:
    for begin in range(0, len(content), 1 << 18):
        yield content[begin : begin + (1 << 18)]
