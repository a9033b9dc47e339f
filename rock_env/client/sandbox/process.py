"""Background processes of one sandbox: they run on without a caller, and the end of what they wrote is kept.

Made by `AsyncSandbox.start_process` and `AsyncSandbox.processes`.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing

from rock_env.client.sandbox.calls import SandboxCalls
from rock_env.client.sandbox.exec import signal_number
from rock_env.errors import InfraError
from rock_env.proto.v1 import sandbox_pb2 as pb
from rock_env.sandbox import CommandEnd, ExecResult, OutputChunk
from rock_env.wire.sandboxes import command_end

__all__ = ["RemoteProcess"]


class RemoteProcess:
    """A background process. It ends by itself, by a signal, or with its sandbox; never with its caller."""

    def __init__(self, calls: SandboxCalls, process_id: str) -> None:
        self.id = process_id
        self._calls = calls
        self._end: CommandEnd | None = None

    def __repr__(self) -> str:
        return f"RemoteProcess({self.id})"

    async def logs(
        self, *, follow: bool = False, stdout_offset: int = 0, stderr_offset: int = 0
    ) -> AsyncGenerator[OutputChunk]:
        """Yield what it wrote, from the offsets on, and with `follow` what it writes until it ends.

        Only the end of each stream is kept; where the beginning is gone, the first offset is higher than asked for.
        """
        at = {"stdout": stdout_offset, "stderr": stderr_offset}

        def request() -> pb.ProcessLogsRequest:
            return pb.ProcessLogsRequest(
                process_id=self.id, stdout_offset=at["stdout"], stderr_offset=at["stderr"], follow=follow
            )

        async with aclosing(self._calls.resumed("ProcessLogs", request)) as events:
            async for event in events:
                kind = event.WhichOneof("kind")
                if kind == "exit":
                    self._end = command_end(event.exit)
                    return
                chunk = getattr(event, kind)
                at[kind] = chunk.offset + len(chunk.data)
                yield OutputChunk(kind, chunk.data, chunk.offset)

    async def wait(self) -> ExecResult:
        """Wait for its end and return it with what is kept of its output."""
        kept = {"stdout": bytearray(), "stderr": bytearray()}
        async with aclosing(self.logs(follow=True)) as chunks:
            async for chunk in chunks:
                kept[chunk.stream] += chunk.data
        if self._end is None:
            raise InfraError(f"the log of process {self.id} ended without the process's end.")
        return self._end.with_output(bytes(kept["stdout"]), bytes(kept["stderr"]))

    async def signal(self, number: int) -> None:
        """Send a signal, 1 to 64, to its process group. Raise `Unavailable` where nobody knows if it arrived."""
        request = pb.SignalProcessRequest(process_id=self.id, signal=signal_number(number))
        sandbox_id = self.id.partition("/")[0]
        await self._calls.unary("SignalProcess", request, again=False, sandbox_id=sandbox_id)
