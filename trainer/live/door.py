"""Where a run says what it is busy with, and whoever asks there.

    with Door(folder, answer):            the run; `answer()` returns a `Status`
    ask(folder)                           from outside, by the same user or root

It is a socket of Linux that has a name and no file, so that a killed run leaves nothing in its folder; the name is that of
the folder on its file system. Anybody may take the name or call it: both sides look at whose process the other one is. A
thread of its own answers, one question at a time, also where the loop's thread hangs. A question is one byte.
"""

from __future__ import annotations

import os
import socket
import struct
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import msgspec

from rock_env.errors import InvalidArgument
from rock_env.foreign import budget
from trainer.errors import RunFolderError
from trainer.live.status import Status, stacks

__all__ = ["Door", "ask", "name_of"]

_ASKS_S, _ANSWERS_S = 2.0, 5.0
"""How long a question may take to come, and how long is waited for the answer."""
_QUEUE, _PAUSE_S = 64, 0.5
_MOST_BYTES = 1 << 20
_SHORT, _WHOLE = b"s", b"w"
_PEER = struct.Struct("3i")
_ROOT = 0


def name_of(folder: Path) -> str:
    """Return the name of a run's socket. Raise `OSError` where there is no such folder."""
    found = folder.stat()
    return f"\0ale-run-{found.st_dev:x}-{found.st_ino:x}"


def _user_of(peer: socket.socket) -> int:
    """Return whose process is at the other end. Raise `OSError`."""
    uid: int = _PEER.unpack(peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size))[1]
    return uid


class Door:
    """A context manager. Where there can be no such socket the run goes on without: `why_not` says why."""

    def __init__(self, folder: Path, answer: Callable[[], Status]) -> None:
        self._folder, self._answer = folder, answer
        self._listener: socket.socket | None = None
        self._ends = threading.Event()
        self.why_not = ""

    def __enter__(self) -> Door:
        listener = None
        try:
            if not hasattr(socket, "SO_PEERCRED"):
                raise OSError("there are no sockets of Linux here")
            listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            listener.bind(name_of(self._folder))
            listener.listen(_QUEUE)
            threading.Thread(target=self._serve, args=(listener,), name="status", daemon=True).start()
            self._listener = listener
        except (OSError, RuntimeError) as error:
            self.why_not = f"nobody can ask this run how it is: {getattr(error, 'strerror', None) or error}"
            if listener is not None:
                listener.close()
        return self

    def __exit__(self, *_: object) -> None:
        self._ends.set()
        if self._listener is not None:
            self._listener.shutdown(socket.SHUT_RDWR)  # ends `accept`, and nobody comes any more
            self._listener.close()

    def _serve(self, listener: socket.socket) -> None:
        while not self._ends.is_set():
            try:
                caller, _ = listener.accept()
            except OSError:
                self._ends.wait(_PAUSE_S)  # too many open files pass
                continue
            with caller, suppress(Exception):
                self._reply(caller)

    def _reply(self, caller: socket.socket) -> None:
        caller.settimeout(_ASKS_S)
        if _user_of(caller) not in (_ROOT, os.geteuid()):
            return
        question = caller.recv(1)
        if question in (_SHORT, _WHOLE):
            status = self._answer()
            if question == _WHOLE:
                status.stacks = stacks()
            caller.sendall(msgspec.json.encode(status))


def ask(folder: Path, *, whole: bool = False) -> Status | None:
    """Return what a run in this folder says, `whole` with the stacks of its threads; None where none runs on this machine.

    Raise `RunFolderError` where one is there that does not answer, or answers what is no status.
    """
    data, until_s = bytearray(), time.monotonic() + _ANSWERS_S
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as caller:
            caller.settimeout(_ANSWERS_S)
            caller.connect(name_of(folder))
            if _user_of(caller) not in (_ROOT, os.geteuid(), folder.stat().st_uid):
                return None  # somebody who took the name
            caller.sendall(_WHOLE if whole else _SHORT)
            while len(data) <= _MOST_BYTES and (piece := caller.recv(64 << 10)):
                data += piece
                if (left_s := until_s - time.monotonic()) <= 0:
                    raise TimeoutError
                caller.settimeout(left_s)
    except (FileNotFoundError, ConnectionRefusedError, NotADirectoryError):
        return None
    except (TimeoutError, BlockingIOError) as error:  # the latter where as many wait as may
        raise RunFolderError(
            f"the run in {folder} is there and does not answer within {_ANSWERS_S:g} s: its process is stopped, or "
            "something keeps Python's lock. Look at it with `py-spy dump`, or end it and continue with --resume."
        ) from error
    except OSError as error:
        raise RunFolderError(
            f"cannot ask the run in {folder}: {error.strerror or error}. Ask as the user who runs it, on its machine."
        ) from error
    try:
        if len(data) > _MOST_BYTES:
            raise InvalidArgument(f"it has more than {_MOST_BYTES} bytes")
        budget.check_json(bytes(data), "the answer")
        return msgspec.json.decode(data, type=Status)
    except (InvalidArgument, msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise RunFolderError(
            f"what answers in {folder} is no run of this version: {error}. Use the ALE that runs it."
        ) from error
