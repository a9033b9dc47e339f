"""Convert between sandbox values and their protobuf messages, like `wire` does for environments.

Used by the SandboxService and its clients. It converts and checks nothing else: no sockets, no state.
"""

from __future__ import annotations

import re
import stat
from collections.abc import AsyncIterator, Sequence
from typing import Any

from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp

from rock_env.arguments import shown
from rock_env.errors import InvalidArgument
from rock_env.lifecycle import SandboxRecord, SandboxState
from rock_env.proto.v1 import sandbox_pb2 as pb
from rock_env.sandbox import CommandEnd, FileEntry, ProcessInfo
from rock_env.snapshots import SnapshotRecord, SnapshotState, Uses
from rock_env.spec import NetworkPolicy, Resources, SandboxSpec
from rock_env.task_spec import LONGEST_S, check_amounts
from rock_env.wire.fields import written

__all__ = [
    "asked_idle_s",
    "asked_lease_s",
    "command_end",
    "duration",
    "exit_message",
    "file_message",
    "info_message",
    "moment",
    "of_one",
    "page_token",
    "process_info",
    "process_message",
    "sandbox_spec",
    "sandbox_state",
    "seconds",
    "snapshot_message",
    "snapshot_state",
    "span",
    "spec_message",
    "timestamp",
]

_SHORTEST_S = 0.001
_LEAST_IDLE_S = 0.1
"""A sandbox in use looks at its idle deadline, and stores the next one, once per this time at most."""
_MOST_READY, _MOST_READY_WORDS = 4096, 64
"""Each record of a sandbox has its spec's command in it."""


def timestamp(seconds: float) -> Timestamp:
    """Write a moment, in seconds since the epoch."""
    message = Timestamp()
    message.FromNanoseconds(round(seconds * 1e9))
    return message


def moment(message: Timestamp, name: str) -> float:
    """Read a caller's moment, in seconds since the epoch. Raise `InvalidArgument` outside the years 1 to 9999."""
    try:
        nanoseconds: int = message.ToNanoseconds()
    except ValueError:
        raise InvalidArgument(
            f"{name} must be a time of the years 1 to 9999 with 0 to 999999999 nanoseconds, "
            f"got {message.seconds} s and {message.nanos} ns"
        ) from None
    return nanoseconds / 1e9


def duration(seconds: float | None) -> Duration | None:
    """Write a time, or nothing."""
    if seconds is None:
        return None
    message = Duration()
    message.FromNanoseconds(round(seconds * 1e9))
    return message


def span(message: Duration, name: str, *, least_s: float = 0.0) -> float:
    """Read a caller's duration of at most about ten years, in seconds. Raise `InvalidArgument` for any other, and for what
    protobuf calls invalid: more nanoseconds than a second has, or of another sign than the seconds.
    """
    whole, nanos = message.seconds, message.nanos
    if not -(10**9) < nanos < 10**9 or whole * nanos < 0:
        raise InvalidArgument(
            f"{name} must have -999999999 to 999999999 nanoseconds, of the sign of its seconds; got {whole} s and {nanos} ns"
        )
    value: float = whole + nanos / 1e9
    if not least_s <= value <= LONGEST_S:
        raise InvalidArgument(f"{name} must be from {least_s:g} to {LONGEST_S:g} seconds, got {value:g}")
    return value


def seconds(message: Duration, name: str) -> float:
    """Read a duration as `span` does. Raise `InvalidArgument` unless it is positive."""
    return span(message, name, least_s=_SHORTEST_S)


async def of_one(first: Any, requests: AsyncIterator[Any], *names: str) -> AsyncIterator[Any]:
    """Yield a call's later messages. Raise `InvalidArgument` for one whose fields `names`, if set, are not the first's."""
    async for request in requests:
        for name in names:
            said = getattr(request, name, None)  # bytes alone have no fields
            if said and said != getattr(first, name):
                raise InvalidArgument(
                    f"a later message has the {name} {said!r} and the first {getattr(first, name)!r}: leave it out there"
                )
        yield request


def asked_lease_s(request: pb.CreateSandboxRequest | pb.ForkSandboxRequest) -> float | None:
    """Read the lease of a sandbox to be made, if it gets one. Raise `InvalidArgument`."""
    return seconds(request.lease, "lease") if request.HasField("lease") else None


def asked_idle_s(request: pb.CreateSandboxRequest | pb.ForkSandboxRequest) -> float | None:
    """Read the idle timeout of a sandbox to be made, if it gets one. Raise `InvalidArgument`."""
    if not request.HasField("idle_timeout"):
        return None
    asked = seconds(request.idle_timeout, "idle_timeout")
    if asked < _LEAST_IDLE_S:
        raise InvalidArgument(f"idle_timeout must be at least {_LEAST_IDLE_S:g} s, got {asked:g}")
    return asked


def sandbox_spec(message: pb.SandboxSpec) -> SandboxSpec:
    """Read a spec; an absent or zero field means the default. Raise `InvalidArgument` for what no machine can hold."""
    asked, default, base = message.resources, Resources(), SandboxSpec()
    spec = SandboxSpec(
        image=message.image,
        resources=Resources(
            cpus=asked.cpus or default.cpus,
            memory_bytes=asked.memory_bytes or default.memory_bytes,
            disk_bytes=asked.disk_bytes or default.disk_bytes,
            pids=asked.pids or default.pids,
            gpus=asked.gpus,
        ),
        network=NetworkPolicy(enabled=message.network.enabled, allow=tuple(message.network.allow)),
        env=tuple(sorted(message.env.items())),
        workdir=message.workdir or base.workdir,
        runtime=message.runtime,
        lifetime_s=_lifetime_s(message, base.lifetime_s),
        preload=tuple(message.preload),
        ready=_command(message.ready),
    )
    check_amounts(spec)
    return spec


def _command(words: Sequence[str]) -> tuple[str, ...]:
    length = sum(map(len, words))
    if length > _MOST_READY or len(words) > _MOST_READY_WORDS or any("\0" in word for word in words):
        raise InvalidArgument(
            f"spec.ready must be a command of at most {_MOST_READY_WORDS} words and {_MOST_READY} characters without NUL, "
            f"got {len(words)} words and {length} characters"
        )
    return tuple(words)


def _lifetime_s(message: pb.SandboxSpec, default: float) -> float:
    given = message.lifetime.seconds or message.lifetime.nanos
    return seconds(message.lifetime, "spec.lifetime") if given else default


def spec_message(spec: SandboxSpec) -> pb.SandboxSpec:
    """Write a spec."""
    network = spec.network
    return pb.SandboxSpec(
        image=spec.image,
        resources=written(spec.resources, pb.Resources),
        network=pb.NetworkPolicy(enabled=network.enabled, allow=network.allow),
        env=dict(spec.env),
        workdir=spec.workdir,
        runtime=spec.runtime,
        lifetime=duration(spec.lifetime_s),
        preload=spec.preload,
        ready=spec.ready,
    )


def sandbox_state(number: int) -> SandboxState:
    """Read a state. Raise `InvalidArgument` for a number that names none."""
    if number == pb.SANDBOX_STATE_UNSPECIFIED or number not in pb.SandboxState.values():
        raise InvalidArgument(f"{number} is no state of a sandbox; expected one of SandboxState")
    return SandboxState(pb.SandboxState.Name(number).removeprefix("SANDBOX_STATE_"))


def info_message(record: SandboxRecord) -> pb.SandboxInfo:
    """Write a sandbox's record."""
    message = pb.SandboxInfo(
        id=record.id,
        spec_digest=record.spec.digest,
        state=_wire_name(record.state),
        reason=record.reason,
        created_at=timestamp(record.created_at),
        owner=record.tenant,
        labels=record.labels,
        backend=record.backend,
        history=[
            pb.StateChange(state=_wire_name(change.state), reason=change.reason, at=timestamp(change.at))
            for change in record.history
        ],
        revision=record.revision,
        environment=record.environment,
        expires_at=timestamp(record.expires_at),
        durable=record.lasting,
        snapshot_id=record.snapshot_id,
        image=record.spec.image,
        resources=written(record.spec.resources, pb.Resources),
    )
    if record.lease_expires_at is not None:
        message.lease_expires_at.CopyFrom(timestamp(record.lease_expires_at))
    if record.idle_expires_at is not None:
        message.idle_expires_at.CopyFrom(timestamp(record.idle_expires_at))
    return message


def snapshot_state(number: int) -> SnapshotState:
    """Read a snapshot's state. Raise `InvalidArgument` for a number that names none."""
    if number == pb.SNAPSHOT_STATE_UNSPECIFIED or number not in pb.SnapshotState.values():
        raise InvalidArgument(f"{number} is no state of a snapshot; expected one of SnapshotState")
    return SnapshotState(pb.SnapshotState.Name(number).removeprefix("SNAPSHOT_STATE_"))


def snapshot_message(record: SnapshotRecord, uses: Uses) -> pb.SnapshotInfo:
    """Write a snapshot's record and what builds upon it."""
    return pb.SnapshotInfo(
        id=record.id,
        parent=record.parent,
        sandbox_id=record.sandbox_id,
        created_at=timestamp(record.created_at),
        bytes=record.bytes,
        labels=record.labels,
        children=uses.children,
        boxes=uses.boxes,
        state=f"SNAPSHOT_STATE_{record.state}",
        backend=record.backend,
    )


def exit_message(end: CommandEnd) -> pb.ExecExit:
    """Write how a command ended."""
    return pb.ExecExit(
        exit_code=end.exit_code,
        signal=end.signal,
        timed_out=end.timed_out,
        oom_killed=end.oom_killed,
        truncated=end.truncated,
        infra_error=end.infra_error,
        duration=duration(end.duration_s),
    )


def command_end(message: pb.ExecExit) -> CommandEnd:
    """Read how a command ended."""
    return CommandEnd(
        exit_code=message.exit_code if message.HasField("exit_code") else None,
        signal=message.signal if message.HasField("signal") else None,
        duration_s=message.duration.ToNanoseconds() / 1e9,
        timed_out=message.timed_out,
        truncated=message.truncated,
        oom_killed=message.oom_killed,
        infra_error=message.infra_error,
    )


def process_message(sandbox_id: str, process: ProcessInfo) -> pb.ProcessInfo:
    """Write a background process's description."""
    return pb.ProcessInfo(
        process_id=f"{sandbox_id}/{process.id}",
        argv=process.argv,
        pid=process.pid,
        running_for=duration(process.running_for_s),
        exit=None if process.end is None else exit_message(process.end),
    )


def process_info(message: pb.ProcessInfo) -> ProcessInfo:
    """Read a background process's description; its id is `SANDBOX/NAME`."""
    return ProcessInfo(
        id=message.process_id,
        argv=tuple(message.argv),
        pid=message.pid,
        running_for_s=message.running_for.ToNanoseconds() / 1e9,
        end=command_end(message.exit) if message.HasField("exit") else None,
    )


def file_message(entry: FileEntry) -> pb.FileStat:
    """Write a file's description. A path that is not UTF-8 is shown with replacement characters."""
    return pb.FileStat(
        path=_text(entry.path),
        size=entry.size,
        mode=stat.S_IMODE(entry.mode),
        modified_at=timestamp(entry.modified_at),
        directory=stat.S_ISDIR(entry.mode),
        symlink_target=_text(entry.symlink_target),
    )


def page_token(token: str, prefix: str) -> str:
    """Return the id after which a page of a list begins, "" for the first. Raise `InvalidArgument` for no id."""
    if token and not re.fullmatch(rf"{prefix}[0-9A-Za-z._-]+", token, re.ASCII):
        raise InvalidArgument(
            f"page_token {shown(token)} is none of this list's: expected the next_page_token of an answer."
        )
    return token


def _text(path: str) -> str:
    return path.encode(errors="surrogateescape").decode(errors="replace")


def _wire_name(state: SandboxState) -> str:
    return f"SANDBOX_STATE_{state}"
