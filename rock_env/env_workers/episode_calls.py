"""The system calls that the process of a hosted library's episode may make, as a BPF program: an allow-list.

It computes, reads files, and talks over the socket that it was given. It starts no process, signals and traces no other,
opens no socket and writes no file. What is not listed is refused with EPERM, which Python raises as `PermissionError`.
Numbers: asm/unistd_64.h and asm-generic/unistd.h. Format: linux/filter.h, linux/seccomp.h.
"""

from __future__ import annotations

import errno
import fcntl
import os

from rock_env.backends.process.seccomp import (
    ALLOW,
    ARCH_AT,
    AUDIT,
    ERRNO,
    INSTRUCTION,
    JUMP_BITS,
    JUMP_EQUAL,
    KILL_PROCESS,
    LOAD,
    MACHINES,
    NUMBER_AT,
    RETURN,
)

__all__ = ["assemble_episode"]

_NONE = -1
_ALLOWED: dict[str, tuple[int, int]] = {
    "access": (21, _NONE),
    "arch_prctl": (158, _NONE),
    "brk": (12, 214),
    "clock_getres": (229, 114),
    "clock_gettime": (228, 113),
    "clock_nanosleep": (230, 115),
    "close": (3, 57),
    "dup": (32, 23),
    "exit": (60, 93),
    "exit_group": (231, 94),
    "faccessat": (269, 48),
    "faccessat2": (439, 439),
    "fstat": (5, 80),
    "futex": (202, 98),
    "getcwd": (79, 17),
    "getdents64": (217, 61),
    "getegid": (108, 177),
    "geteuid": (107, 175),
    "getgid": (104, 176),
    "getpid": (39, 172),
    "getppid": (110, 173),
    "getrandom": (318, 278),
    "getrusage": (98, 165),
    "gettid": (186, 178),
    "gettimeofday": (96, 169),
    "getuid": (102, 174),
    "lseek": (8, 62),
    "lstat": (6, _NONE),
    "madvise": (28, 233),
    "mmap": (9, 222),
    "mprotect": (10, 226),
    "mremap": (25, 216),
    "munmap": (11, 215),
    "nanosleep": (35, 101),
    "newfstatat": (262, 79),
    "poll": (7, _NONE),
    "ppoll": (271, 73),
    "pread64": (17, 67),
    "pselect6": (270, 72),
    "read": (0, 63),
    "readlink": (89, _NONE),
    "readlinkat": (267, 78),
    "readv": (19, 65),
    "recvfrom": (45, 207),
    "rseq": (334, 293),
    "rt_sigaction": (13, 134),
    "rt_sigprocmask": (14, 135),
    "rt_sigreturn": (15, 139),
    "sched_getaffinity": (204, 123),
    "sched_yield": (24, 124),
    "select": (23, _NONE),
    "sendto": (44, 206),
    "set_robust_list": (273, 99),
    "setitimer": (38, 103),
    "sigaltstack": (131, 132),
    "stat": (4, _NONE),
    "statx": (332, 291),
    "sysinfo": (99, 179),
    "time": (201, _NONE),
    "uname": (63, 160),
    "write": (1, 64),
    "writev": (20, 66),
}
"""Their numbers on x86_64 and aarch64."""
_CLONE3 = 435
_CLONE_THREAD = 0x10000
_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC
_CLONE, _FCNTL, _OPENAT, _PRLIMIT, _TGKILL = (56, 220), (72, 25), (257, 56), (302, 261), (234, 131)
_FCNTL_COMMANDS = (fcntl.F_GETFD, fcntl.F_SETFD, fcntl.F_GETFL, fcntl.F_SETFL, fcntl.F_DUPFD_CLOEXEC)
"""Others name whom a descriptor signals."""

_Code = list[tuple[int, int, int, int]]
_REFUSE = (RETURN, 0, 0, ERRNO | errno.EPERM)


def assemble_episode(machine: str, pid: int) -> bytes:
    """Return the filter for the process `pid` on `machine` (one of MACHINES), as an array of `struct sock_filter`."""
    column = MACHINES.index(machine)
    code: _Code = [
        (LOAD, 0, 0, ARCH_AT),
        (JUMP_EQUAL, 1, 0, AUDIT[machine]),
        (RETURN, 0, 0, KILL_PROCESS),
        (LOAD, 0, 0, NUMBER_AT),
    ]
    for numbers in _ALLOWED.values():
        if numbers[column] != _NONE:
            code += [(JUMP_EQUAL, 0, 1, numbers[column]), (RETURN, 0, 0, ALLOW)]
    # clone3 hides its flags behind a pointer; ENOSYS makes the C library use clone.
    code += [(JUMP_EQUAL, 0, 1, _CLONE3), (RETURN, 0, 0, ERRNO | errno.ENOSYS)]
    code += _where(_CLONE[column], 0, [(JUMP_BITS, 0, 1, _CLONE_THREAD)])
    code += _where(_OPENAT[column], 2, [(JUMP_BITS, 1, 0, _WRITES)])
    code += _where(_PRLIMIT[column], 0, [(JUMP_EQUAL, 0, 1, 0)])
    code += _where(_TGKILL[column], 0, [(JUMP_EQUAL, 0, 1, pid)])
    last = len(_FCNTL_COMMANDS) - 1
    commands = [
        (JUMP_EQUAL, last - at, int(at == last), command) for at, command in enumerate(_FCNTL_COMMANDS)
    ]
    code += _where(_FCNTL[column], 1, commands)
    return b"".join(INSTRUCTION.pack(*each) for each in (*code, _REFUSE))


def _where(call: int, argument: int, tests: _Code) -> _Code:
    """Allow a call if the tests of the low half of an argument fall through; both machines are little-endian."""
    load = (LOAD, 0, 0, 16 + 8 * argument)
    return [(JUMP_EQUAL, 0, len(tests) + 3, call), load, *tests, (RETURN, 0, 0, ALLOW), _REFUSE]
