"""Which system calls a box's commands may not make, as a BPF program.

Built once by the process backend, installed by the zygote in each box before anything untrusted runs, so that it
holds for the guest and every command; in a container the guest installs a small one of its own. A deny-list: programs
of all sorts run in boxes, and what they may reach is bounded by namespaces, capabilities and limits first; this takes
away what widens the kernel's attack surface
(new namespaces, mounts, tracing, BPF, keyrings, io_uring, modules, clocks) whatever those would say.
Numbers: asm/unistd_64.h and asm-generic/unistd.h. Format: linux/filter.h, linux/seccomp.h.
"""

from __future__ import annotations

import errno
import struct

__all__ = ["DENIED", "MACHINES", "assemble", "assemble_no_io_uring"]

INSTRUCTION = struct.Struct("=HBBI")
ALLOW, KILL_PROCESS, ERRNO = 0x7FFF0000, 0x80000000, 0x00050000
LOAD, JUMP_EQUAL, JUMP_AT_LEAST, JUMP_BITS, RETURN, MASK = 0x20, 0x15, 0x35, 0x45, 0x06, 0x54
NUMBER_AT, ARCH_AT = 0, 4
X32_BIT = 0x40000000
AUDIT = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
MACHINES = tuple(AUDIT)

NAMESPACE_FLAGS = 0x7E020000
"""CLONE_NEWNS, NEWCGROUP, NEWUTS, NEWIPC, NEWUSER, NEWPID, NEWNET."""
SOCKET_FAMILIES = (1, 2, 10, 16)
"""UNIX, INET, INET6, NETLINK. Others (vsock above all) are not bound to the network namespace or rarely audited."""
TERMINAL_REQUESTS = (0x5412, 0x541C)
"""TIOCSTI and TIOCLINUX: typing into somebody's terminal."""

DENIED: dict[str, tuple[int, int]] = {
    "acct": (163, 89),
    "add_key": (248, 217),
    "adjtimex": (159, 171),
    "bpf": (321, 280),
    "clock_adjtime": (305, 266),
    "clock_settime": (227, 112),
    "delete_module": (176, 106),
    "fanotify_init": (300, 262),
    "finit_module": (313, 273),
    "fsconfig": (431, 431),
    "fsmount": (432, 432),
    "fsopen": (430, 430),
    "fspick": (433, 433),
    "init_module": (175, 105),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
    "io_uring_setup": (425, 425),
    "kcmp": (312, 272),
    "kexec_file_load": (320, 294),
    "kexec_load": (246, 104),
    "keyctl": (250, 219),
    "lookup_dcookie": (212, 18),
    "mount": (165, 40),
    "mount_setattr": (442, 442),
    "move_mount": (429, 429),
    "move_pages": (279, 239),
    "open_by_handle_at": (304, 265),
    "open_tree": (428, 428),
    "perf_event_open": (298, 241),
    "pidfd_getfd": (438, 438),
    "pivot_root": (155, 41),
    "process_madvise": (440, 440),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "ptrace": (101, 117),
    "quotactl": (179, 60),
    "quotactl_fd": (443, 443),
    "reboot": (169, 142),
    "request_key": (249, 218),
    "setdomainname": (171, 162),
    "sethostname": (170, 161),
    "setns": (308, 268),
    "settimeofday": (164, 170),
    "swapoff": (168, 225),
    "swapon": (167, 224),
    "syslog": (103, 116),
    "umount2": (166, 39),
    "unshare": (272, 97),
    "userfaultfd": (323, 282),
    "vhangup": (153, 58),
}
"""Refused with EPERM: their numbers on x86_64 and aarch64."""
_X86_ONLY = (172, 173, 177, 178, 180, 134, 174, 156)
"""iopl, ioperm, get_kernel_syms, query_module, nfsservctl, uselib, create_module, _sysctl."""
_CLONE3 = 435
_CLONE, _IOCTL, _SOCKET = (56, 220), (16, 29), (41, 198)


def assemble(machine: str) -> bytes:
    """Return the filter for `machine` (one of MACHINES), as an array of `struct sock_filter`."""
    column = MACHINES.index(machine)
    code: list[tuple[int, int, int, int]] = [
        (LOAD, 0, 0, ARCH_AT),
        (JUMP_EQUAL, 1, 0, AUDIT[machine]),
        (RETURN, 0, 0, KILL_PROCESS),  # calls of another machine (32 bits) have other numbers
        (LOAD, 0, 0, NUMBER_AT),
    ]
    if machine == "x86_64":
        code += [(JUMP_AT_LEAST, 0, 1, X32_BIT), (RETURN, 0, 0, KILL_PROCESS)]
    numbers = [numbers[column] for numbers in DENIED.values()]
    if machine == "x86_64":
        numbers += _X86_ONLY
    for number in sorted(numbers):
        code += [(JUMP_EQUAL, 0, 1, number), _refuse(errno.EPERM)]
    # clone3 hides its flags behind a pointer; ENOSYS makes the C library use clone.
    code += [(JUMP_EQUAL, 0, 1, _CLONE3), _refuse(errno.ENOSYS)]
    code += [
        (JUMP_EQUAL, 0, 4, _CLONE[column]),
        (LOAD, 0, 0, _argument(0)),
        (JUMP_BITS, 0, 1, NAMESPACE_FLAGS),
        _refuse(errno.EPERM),
        (RETURN, 0, 0, ALLOW),
    ]
    requests = [
        (JUMP_EQUAL, len(TERMINAL_REQUESTS) - at, 0, value) for at, value in enumerate(TERMINAL_REQUESTS)
    ]
    code += [
        (JUMP_EQUAL, 0, len(requests) + 3, _IOCTL[column]),
        (LOAD, 0, 0, _argument(1)),
        *requests,
        (RETURN, 0, 0, ALLOW),
        _refuse(errno.EPERM),
    ]
    families = [(JUMP_EQUAL, len(SOCKET_FAMILIES) - at, 0, value) for at, value in enumerate(SOCKET_FAMILIES)]
    code += [
        (JUMP_EQUAL, 0, len(families) + 2, _SOCKET[column]),
        (LOAD, 0, 0, _argument(0)),
        *families,
        _refuse(errno.EAFNOSUPPORT),
        (RETURN, 0, 0, ALLOW),
    ]
    return b"".join(INSTRUCTION.pack(*instruction) for instruction in code)


def assemble_no_io_uring() -> bytes:
    """Return a filter that refuses io_uring and nothing else, beside a container engine's own; the same for all machines.

    Docker's default filter leaves io_uring open before version 25. These calls came late: every machine numbers them alike.
    """
    code = [(LOAD, 0, 0, NUMBER_AT), (MASK, 0, 0, ~X32_BIT & 0xFFFFFFFF)]
    for name in ("io_uring_setup", "io_uring_enter", "io_uring_register"):
        code += [(JUMP_EQUAL, 0, 1, DENIED[name][0]), _refuse(errno.EPERM)]
    return b"".join(INSTRUCTION.pack(*each) for each in (*code, (RETURN, 0, 0, ALLOW)))


def _argument(index: int) -> int:
    """Return where the low half of an argument lies in `struct seccomp_data` (both machines are little-endian)."""
    return 16 + 8 * index


def _refuse(number: int) -> tuple[int, int, int, int]:
    return (RETURN, 0, 0, ERRNO | number)
