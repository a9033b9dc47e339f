"""The few system calls that Python's standard library does not wrap.

Used by the guest. It goes to `_ctypes` itself, because importing `ctypes` takes longer than starting a box should.
"""

from __future__ import annotations

import _ctypes
import os
from _ctypes import FUNCFLAG_CDECL, FUNCFLAG_USE_ERRNO, CFuncPtr, Structure, _SimpleCData

PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_SET_CHILD_SUBREAPER = 1, 4, 36
_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER = 22, 2


class _Int(_SimpleCData):  # type: ignore[type-arg]
    _type_ = "i"


class _Short(_SimpleCData):  # type: ignore[type-arg]
    _type_ = "H"


class _Bytes(_SimpleCData):  # type: ignore[type-arg]
    _type_ = "z"


class _Filter(Structure):
    _fields_ = (("len", _Short), ("filter", _Bytes))


class _Function(CFuncPtr):
    _flags_ = FUNCFLAG_CDECL | FUNCFLAG_USE_ERRNO
    _restype_ = _Int


_LIBC = _ctypes.dlopen(None, 0)  # type: ignore[arg-type]  # None: this program itself
_inotify_init1 = _Function(_ctypes.dlsym(_LIBC, "inotify_init1"))
_inotify_add_watch = _Function(_ctypes.dlsym(_LIBC, "inotify_add_watch"))
_prctl = _Function(_ctypes.dlsym(_LIBC, "prctl"))


def prctl(option: int, value: int) -> None:
    """Set an attribute of this process. Raise `OSError`."""
    _checked(_prctl(option, value, 0, 0, 0), f"prctl {option}")


def filter_calls(program: bytes) -> None:
    """Filter the system calls of this process and its children for ever; needs no-new-privileges. Raise `OSError`."""
    wrapped = _Filter(len(program) // 8, program)
    _checked(_prctl(_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, _ctypes.byref(wrapped), 0, 0), "seccomp")


def inotify_init() -> int:
    """Return a new, non-blocking inotify descriptor. Raise `OSError`."""
    return _checked(_inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC), "inotify_init1")


def inotify_add_watch(fd: int, path: bytes, mask: int) -> int:
    """Watch a path and return the watch's number. Raise `OSError`."""
    return _checked(_inotify_add_watch(fd, path, mask), f"watch {path!r}")


def _checked(result: int, doing: str) -> int:
    if result < 0:
        error = _ctypes.get_errno()
        raise OSError(error, f"{doing}: {os.strerror(error)}")
    return result
