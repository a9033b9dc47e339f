"""The system calls that Python 3.11 lacks: namespaces, mounts, capabilities, seccomp.

Used by the zygote and the fence, in processes with one thread. Each function is one call of `man 2`; a failure is an
`OSError` that names the call and what it was about. Holds no policy. Standard library alone: it runs in every box.
"""

from __future__ import annotations

import ctypes
import os
import platform

__all__ = [
    "bind_as_owner",
    "close_all_but",
    "drop_capabilities",
    "fork",
    "install_filter",
    "mount",
    "mount_attributes",
    "pivot_root",
    "prctl",
    "umount",
    "unshare",
]

NEWNS, NEWCGROUP, NEWUTS, NEWIPC = 0x20000, 0x2000000, 0x4000000, 0x8000000  # linux/sched.h
NEWUSER, NEWPID, NEWNET = 0x10000000, 0x20000000, 0x40000000
RDONLY, NOSUID, NODEV, NOEXEC, REMOUNT, BIND, REC, PRIVATE = (
    1,
    2,
    4,
    8,
    32,
    4096,
    16384,
    1 << 18,
)  # linux/mount.h
ATTR_RDONLY, ATTR_NOSUID, ATTR_NODEV = 1, 2, 4
_ATTR_IDMAP = 0x100000
PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_CAPBSET_DROP, PR_SET_SECUREBITS, PR_SET_NO_NEW_PRIVS = 1, 4, 24, 28, 38
_MNT_DETACH = 2
_AT_RECURSIVE, _AT_EMPTY_PATH = 0x8000, 0x1000
_AT_FDCWD = -100
_OPEN_TREE, _MOVE_MOUNT = 428, 429  # on all machines
_OPEN_TREE_CLONE, _MOVE_MOUNT_FROM_DESCRIPTOR = 1, 4
_SECCOMP_SET_MODE_FILTER = 1
_CAPABILITY_VERSION_3 = 0x20080522
_SECUREBITS = 0xEF  # linux/securebits.h: no root, no fixup, no ambient, all locked; keep-caps off and locked
_CALLS = {  # pivot_root, mount_setattr, seccomp, capset, clone
    "x86_64": (155, 442, 317, 126, 56),
    "aarch64": (41, 442, 277, 91, 220),
}
_MACHINE = platform.machine() if os.name == "posix" else ""
_PIVOT_ROOT, _MOUNT_SETATTR, _SECCOMP, _CAPSET, _CLONE = _CALLS.get(_MACHINE, (-1,) * 5)
_SIGCHLD = 17

# PyDLL keeps the interpreter's lock over the call, so that a forked child finds it in its own hands.
_libc = ctypes.PyDLL(None, use_errno=True)
_libc.syscall.restype = ctypes.c_long


class _MountAttr(ctypes.Structure):
    _fields_ = [(name, ctypes.c_uint64) for name in ("attr_set", "attr_clr", "propagation", "userns_fd")]


class _Filter(ctypes.Structure):
    _fields_ = [("len", ctypes.c_ushort), ("filter", ctypes.c_char_p)]


def _check(result: int, what: str) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")


def unshare(flags: int) -> None:
    """Leave the namespaces in `flags` for fresh ones."""
    _check(_libc.unshare(ctypes.c_int(flags)), f"unshare({flags:#x})")


def fork(namespaces: int) -> int:
    """Fork a child into fresh namespaces; 0 in the child, as `os.fork`.

    The C library's fork cannot do that. What it does besides (locks of other threads) does not arise with one thread.
    """
    pid: int = _libc.syscall(_CLONE, *map(ctypes.c_ulong, (namespaces | _SIGCHLD, 0, 0, 0, 0)))
    _check(min(pid, 0), f"clone({namespaces:#x})")
    return pid


def mount(source: str, target: str, kind: str = "", flags: int = 0, options: str = "") -> None:
    """Mount `source` on `target`."""
    words = (os.fsencode(word) for word in (source, target, kind))
    result = _libc.mount(*words, ctypes.c_ulong(flags), os.fsencode(options) if options else None)
    _check(result, f"mount {kind or 'of ' + source!r} on {target!r}")


def mount_attributes(target: str, attributes: int, *, recursive: bool) -> None:
    """Set attributes of a mount and, if `recursive`, of all below it (Linux 5.12)."""
    attr = _MountAttr(attributes, 0, 0, 0)
    at = _AT_RECURSIVE if recursive else 0
    path = os.fsencode(target)
    call = _libc.syscall(_MOUNT_SETATTR, _AT_FDCWD, path, at, ctypes.byref(attr), ctypes.sizeof(attr))
    _check(call, f"mount_setattr({target!r}), which needs Linux 5.12")


def bind_as_owner(source: str, target: str, attributes: int, namespace: int) -> None:
    """Bind a tree with attributes; who owns its files is read as in a user namespace (a descriptor).

    The file system has to offer that: overlayfs, for one, does not.
    """
    flags = ctypes.c_uint(_OPEN_TREE_CLONE | os.O_CLOEXEC | _AT_RECURSIVE)
    tree = _libc.syscall(_OPEN_TREE, _AT_FDCWD, os.fsencode(source), flags)
    _check(min(tree, 0), f"open_tree({source!r})")
    try:
        attr = _MountAttr(attributes | _ATTR_IDMAP, 0, 0, namespace)
        at = ctypes.c_uint(_AT_EMPTY_PATH | _AT_RECURSIVE)
        size = ctypes.c_size_t(ctypes.sizeof(attr))
        _check(_libc.syscall(_MOUNT_SETATTR, tree, b"", at, ctypes.byref(attr), size), f"mapping {source!r}")
        flags = ctypes.c_uint(_MOVE_MOUNT_FROM_DESCRIPTOR)
        moved = _libc.syscall(_MOVE_MOUNT, tree, b"", _AT_FDCWD, os.fsencode(target), flags)
        _check(moved, f"move_mount to {target!r}")
    finally:
        os.close(tree)


def umount(target: str) -> None:
    """Take a mount, and all below it, out of sight; it is gone with its last user."""
    _check(_libc.umount2(os.fsencode(target), _MNT_DETACH), f"umount {target!r}")


def pivot_root(new: str, old: str) -> None:
    """Make `new` the root of this mount namespace and put the old one on `old`."""
    call = _libc.syscall(_PIVOT_ROOT, os.fsencode(new), os.fsencode(old))
    _check(call, f"pivot_root({new!r}, {old!r})")


def prctl(option: int, value: int = 0) -> None:
    """Set a property of this process."""
    _check(_libc.prctl(option, *map(ctypes.c_ulong, (value, 0, 0, 0))), f"prctl({option}, {value})")


def drop_capabilities() -> None:
    """Give up all capabilities for ever, also those that a program could be given on exec."""
    prctl(PR_SET_SECUREBITS, _SECUREBITS)
    for capability in range(64):
        try:
            prctl(PR_CAPBSET_DROP, capability)
        except OSError:
            break  # beyond the last capability of this kernel
    header = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION_3, 0)
    nothing = (ctypes.c_uint32 * 6)()
    _check(_libc.syscall(_CAPSET, header, nothing), "capset")
    prctl(PR_SET_NO_NEW_PRIVS, 1)


def install_filter(program: bytes) -> None:
    """Filter the system calls of this process and its children for ever; needs no-new-privileges."""
    wrapped = _Filter(len(program) // 8, program)
    _check(_libc.syscall(_SECCOMP, _SECCOMP_SET_MODE_FILTER, 0, ctypes.byref(wrapped)), "seccomp")


def close_all_but(keep: set[int]) -> None:
    """Close every file descriptor of this process that is not in `keep`."""
    first = 0
    for fd in sorted(keep):
        if first < fd:  # closerange takes an empty range at 0 for all there are
            os.closerange(first, fd)
        first = fd + 1
    os.closerange(first, 1 << 20)
