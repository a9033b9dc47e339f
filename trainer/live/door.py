"""Where a process says what it is busy with, and whoever asks there.

    with Door(name_of(folder), answer):            a run; `answer(whole)` returns a `Status`
    ask(folder)                                    from outside, by the same user or root
    with Door(name_of_actor(id), answer):          another process of the run; `answer(whole)` returns an `At`
    ask_actor(id)                                  the run

It is a socket of Linux that has a name and no file, so that a killed process leaves nothing; a run's name is that of its
folder on its file system. Anybody may take the name or call it: both sides look at whose process the other one is. A
thread of its own answers, one question at a time, also where the process' other threads hang. A question is one byte.
"""

from __future__ import annotations

import os
import socket
import struct
import threading
import time
from collections.abc import Callable, Container
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

import msgspec

from rock_env.errors import InvalidArgument
from rock_env.foreign import budget
from trainer.errors import RunFolderError
from trainer.live.inside import At
from trainer.live.status import Status

__all__ = ["Door", "ask", "ask_actor", "name_of", "name_of_actor"]

_ASKS_S, _ANSWERS_S, _ACTOR_S = 2.0, 8.0, 2.0
"""How long a question may take to come; and the answer: of a run, which asks its actors first, and of one of these."""
_QUEUE, _PAUSE_S = 64, 0.5
_MOST_BYTES = 16 << 20
"""Of an answer: 48 KiB at most of each process."""
_SHORT, _WHOLE = b"s", b"w"
_PEER = struct.Struct("3i")
_ROOT = 0
_Answer = TypeVar("_Answer", Status, At)


def name_of(folder: Path) -> str:
    """Return the name of a run's socket. Raise `OSError` where there is no such folder."""
    found = folder.stat()
    return f"\0ale-run-{found.st_dev:x}-{found.st_ino:x}"


def name_of_actor(actor_id: str) -> str:
    """Return the name of the socket of an actor, which its id tells apart from all others."""
    return f"\0ale-actor-{actor_id}"


def _user_of(peer: socket.socket) -> int:
    """Return whose process is at the other end. Raise `OSError`."""
    uid: int = _PEER.unpack(peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size))[1]
    return uid


class Door:
    """A context manager. Where there can be no such socket the process goes on without: `why_not` says why."""

    def __init__(self, name: str, answer: Callable[[bool], Status | At]) -> None:
        """`answer(whole)` says how it is, `whole` at length, on a thread of the door's."""
        self._name, self._answer = name, answer
        self._listener: socket.socket | None = None
        self._ends = threading.Event()
        self.why_not = ""

    def __enter__(self) -> Door:
        listener = None
        try:
            if not hasattr(socket, "SO_PEERCRED"):
                raise OSError("there are no sockets of Linux here")
            listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            listener.bind(self._name)
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
            caller.sendall(msgspec.json.encode(self._answer(question == _WHOLE)))


def ask(folder: Path, *, whole: bool = False) -> Status | None:
    """Return what a run in this folder says, `whole` with stacks and logs; None where none runs on this machine.

    Raise `RunFolderError` where one is there that does not answer, or answers what is no status.
    """
    try:
        data = _asked(name_of(folder), {_ROOT, os.geteuid(), folder.stat().st_uid}, whole, _ANSWERS_S)
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
        return _read(data, Status) if data is not None else None
    except (InvalidArgument, msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise RunFolderError(
            f"what answers in {folder} is no run of this version: {error}. Use the ALE that runs it."
        ) from error


def ask_actor(actor_id: str, *, whole: bool = False) -> At | str:
    """Return what an actor's process says, or why it says nothing. Raise nothing."""
    try:
        data = _asked(name_of_actor(actor_id), {_ROOT, os.geteuid()}, whole, _ACTOR_S)
        return _read(data, At) if data is not None else "somebody else answers in its name"
    except (FileNotFoundError, ConnectionRefusedError):
        return "it has ended, or is on another machine"
    except (TimeoutError, BlockingIOError):
        return f"it does not answer within {_ACTOR_S:g} s: it is stopped, or something keeps Python's lock"
    except (OSError, InvalidArgument, msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        return f"its answer cannot be had: {error}"


def _asked(name: str, users: Container[int], whole: bool, patience_s: float) -> bytes | None:
    """Return what a socket answers, None where it is not one of these users'. Raise `OSError`."""
    data, until_s = bytearray(), time.monotonic() + patience_s
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as caller:
        caller.settimeout(patience_s)
        caller.connect(name)
        if _user_of(caller) not in users:
            return None  # somebody who took the name
        caller.sendall(_WHOLE if whole else _SHORT)
        while len(data) <= _MOST_BYTES and (piece := caller.recv(64 << 10)):
            data += piece
            if (left_s := until_s - time.monotonic()) <= 0:
                raise TimeoutError
            caller.settimeout(left_s)
    return bytes(data)


def _read(data: bytes, kind: type[_Answer]) -> _Answer:
    if len(data) > _MOST_BYTES:
        raise InvalidArgument(f"it has more than {_MOST_BYTES} bytes")
    budget.check_json(data, "the answer")
    return msgspec.json.decode(data, type=kind)
