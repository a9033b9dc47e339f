"""What a guest is asked and what it answers, as plain values: checked before it is sent, unpacked when it comes.

Used by `guest_host.box` and its link. Nothing here talks to a guest; what comes from one is not trusted to be well formed.
"""

from __future__ import annotations

import marshal
import re
import struct
from collections.abc import Mapping, Sequence

import msgspec

from rock_env.errors import (
    DiskFull,
    FailedPrecondition,
    InfraError,
    InvalidArgument,
    NotFound,
    ResourceExhausted,
    RockError,
)
from rock_env.guest import protocol as guest
from rock_env.guest_host.command import command_end
from rock_env.sandbox import ExecResult, FileEntry, ProcessInfo, TreeSummary
from rock_env.task_spec import check_variables

__all__ = [
    "MAX_KEPT_BYTES",
    "MOST_BYTES",
    "check_argv",
    "check_kept",
    "check_numbers",
    "check_surroundings",
    "check_tree",
    "command_spec",
    "file_entry",
    "left_out",
    "only_block",
    "process_info",
    "refusal",
    "text_of",
    "tree_summary",
]

MAX_KEPT_BYTES = 16 << 20
"""Output limit of a command with a key, and size of a background process's log, at most: the guest keeps them."""
MOST_BYTES = 1 << 62
"""No file or stream is as long, and one more of such numbers still fits in 64 bits."""
_KINDS: dict[bytes, type[RockError]] = {
    guest.NOT_FOUND: NotFound,
    guest.INVALID: InvalidArgument,
    guest.PRECONDITION: FailedPrecondition,
    guest.EXHAUSTED: ResourceExhausted,
    guest.DISK_FULL: DiskFull,
}
_BOUNDS = {
    "offset": (0, MOST_BYTES),
    "stdout_offset": (0, MOST_BYTES),
    "stderr_offset": (0, MOST_BYTES),
    "length": (0, MOST_BYTES),
    "max_output_bytes": (0, MOST_BYTES),
    "mode": (0, 0o7777),
    "signal": (1, 64),
    "rows": (1, 65535),
    "columns": (1, 65535),
}


def check_argv(argv: Sequence[str]) -> None:
    """Raise `InvalidArgument` for a command line that no program can be given."""
    if not argv or any("\0" in part for part in argv):
        raise InvalidArgument(f"argv must be a program and its arguments without NUL, got {list(argv)!r}")


def check_surroundings(env: Mapping[str, str], cwd: str) -> None:
    """Raise `InvalidArgument` for variables or a working folder that no process can have."""
    check_variables(env.items())
    if "\0" in cwd:
        raise InvalidArgument(f"cwd must be a path without NUL, got {cwd!r}")


def check_kept(size: int) -> None:
    """Raise `InvalidArgument` for more output than a guest keeps."""
    if size > MAX_KEPT_BYTES:
        raise InvalidArgument(
            f"output that can be asked for again is limited to {MAX_KEPT_BYTES} bytes per stream, got {size}"
        )


def check_numbers(**given: int) -> None:
    """Raise `InvalidArgument` for a number, by its name, that is outside what a guest's system calls take."""
    for name, number in given.items():
        least, most = _BOUNDS[name]
        if not least <= number <= most:
            raise InvalidArgument(f"{name} must be from {least} to {most}, got {number}")


def refusal(said: bytes | bytearray, before: str = "") -> RockError:
    """Return the error of a guest's refusal, the kind of it first; `before` stands before its message."""
    kind = bytes(said[:1])
    error = _KINDS.get(kind.upper(), InfraError)(before + said[1:].decode(errors="replace"))
    error.own_limit = kind.islower()
    return error


def check_tree(result: ExecResult, doing: str) -> None:
    """Raise what the packing or unpacking of a tree failed with."""
    if result.ok:
        return
    if result.exit_code == 1 and result.stderr:
        raise refusal(result.stderr, f"{doing}: ")
    how = (
        result.infra_error
        or f"ended with {result.exit_code if result.signal is None else f'signal {result.signal}'}"
    )
    raise InfraError(f"{doing}: {how} {result.stderr.decode(errors='replace')}".rstrip())


def tree_summary(said: bytes) -> TreeSummary:
    """Unpack the description of a tree that was unpacked. Raise `InfraError` for one that is malformed."""
    match = re.fullmatch(rb"(\d{1,18}) (\d{1,18})", said)
    if match is None:
        raise InfraError(f"the sandbox described an unpacked tree as {said[:100]!r}")
    return TreeSummary(int(match[1]), int(match[2]))


def left_out(said: bytes) -> list[str]:
    """Unpack the paths of what a box did not take over. Raise `InfraError` for what is no list of them."""
    try:
        return msgspec.json.decode(said, type=list[str])
    except msgspec.DecodeError as error:
        raise InfraError(f"the sandbox described what it left out as {said[:100]!r}") from error


def command_spec(
    argv: Sequence[str],
    env: Mapping[str, str] | None,
    cwd: str | None,
    *,
    timeout_s: float | None,
    limit: int | None,
    mode: str = "capture",
    more: Mapping[str, object] | None = None,
) -> bytes:
    """Return what a guest is told of a command. Raise `InvalidArgument` as `check_surroundings` does."""
    check_surroundings(env or {}, cwd or "")
    what = {
        "argv": list(argv),
        "env": dict(sorted((env or {}).items())),
        "cwd": cwd or ".",
        "timeout_s": timeout_s,
        "limit": limit,
        "mode": mode,
        **(more or {}),
    }
    return marshal.dumps(what, 2)


def text_of(block: bytes | bytearray) -> str:
    """Return the text of bytes that need not be UTF-8."""
    return block.decode(errors="surrogateescape")


def only_block(blocks: list[bytes | bytearray]) -> bytes | bytearray:
    """Return the one block of an answer. Raise `InfraError` for any other number."""
    if len(blocks) != 1:
        raise InfraError(f"the sandbox answered in {len(blocks)} blocks, expected one")
    return blocks[0]


def file_entry(block: bytes | bytearray) -> FileEntry:
    """Unpack the description of a file. Raise `InfraError` for one that is malformed."""
    try:
        size, mode, modified_at, path_length, link_length = guest.ENTRY.unpack_from(block)
    except struct.error as error:
        raise InfraError(f"the sandbox described a file in {len(block)} bytes") from error
    texts = block[guest.ENTRY.size :]
    if len(texts) != path_length + link_length:
        raise InfraError(
            f"the sandbox described a file in {len(texts)} bytes, expected {path_length + link_length}"
        )
    return FileEntry(text_of(texts[:path_length]), size, mode, modified_at, text_of(texts[path_length:]))


def process_info(block: bytes | bytearray) -> ProcessInfo:
    """Unpack the description of a background process. Raise `InfraError` for one that is malformed."""
    try:
        pid, ended, by_signal, value, flags, seconds, length = guest.PROCESS.unpack_from(block)
    except struct.error as error:
        raise InfraError(f"the sandbox described a process in {len(block)} bytes") from error
    texts = block[guest.PROCESS.size :]
    end = command_end(guest.EXITED.pack(by_signal, value, flags, seconds)) if ended else None
    return ProcessInfo(text_of(texts[:length]), tuple(text_of(texts[length:]).split("\0")), pid, seconds, end)
