"""The line to the present server, and the requests in progress on it.

Used by every part of the guest that answers. Where no server is connected, what is sent goes nowhere: nobody asks.
"""

from __future__ import annotations

from .door import HIGH_WATER, FrameConnection

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


class Job:
    """A request in progress: what the server may say about it."""

    def input(self, data: bytes | bytearray) -> None:
        """Take bytes for it."""

    def input_end(self) -> None:
        """Take the end of those bytes."""

    def ack(self, index: int, offset: int) -> None:
        """Note that the server has used stream `index` up to `offset`."""

    def signal(self, number: int) -> None:
        """Send a signal to what was started."""

    def push(self) -> None:
        """Send on, now that the line has room."""

    def detach(self) -> None:
        """Stop: the server, or the caller for whom it asked, is gone."""


class Line:
    """Sends to the server that is connected now."""

    def __init__(self) -> None:
        self._connection: FrameConnection | None = None
        self._jobs: dict[int, Job] = {}
        self._late: dict[Job, None] = {}

    def connect(self, connection: FrameConnection) -> None:
        """Use this connection from now on; what was asked on another is at its end."""
        self.disconnect()
        self._connection = connection
        connection.on_drained(self._drained)

    def disconnect(self) -> None:
        """Send nothing any more, and detach every request in progress."""
        self._connection = None
        jobs, self._jobs, self._late = self._jobs, {}, {}
        for job in jobs.values():
            job.detach()

    @property
    def connected(self) -> bool:
        """Return whether there is a server."""
        return self._connection is not None

    @property
    def full(self) -> bool:
        """Return whether so much is unsent that what can wait should."""
        return self._connection is None or self._connection.unsent >= HIGH_WATER

    def send(self, kind: int, request: int, *parts: Any) -> None:
        """Send one frame."""
        if self._connection is not None:
            self._connection.send(kind, request, *parts)

    def begin(self, request: int, job: Job) -> None:
        """Let the server say more about this request."""
        self._jobs[request] = job

    def finish(self, request: int) -> None:
        """Forget a request that was answered."""
        job = self._jobs.pop(request, None)
        if job is not None:
            self._late.pop(job, None)

    def job(self, request: int) -> Job:
        """Return the request in progress; for one that has ended, one that ignores what is said."""
        return self._jobs.get(request) or _NONE

    def push_later(self, job: Job) -> None:
        """Call `job.push()` when the line has room again."""
        self._late[job] = None

    def _drained(self) -> None:
        late, self._late = self._late, {}
        for job in late:
            job.push()


_NONE = Job()
