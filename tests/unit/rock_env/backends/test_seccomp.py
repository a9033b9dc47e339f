"""The system call filter: what its program decides, by an interpreter of BPF, and what the kernel makes of it."""

from __future__ import annotations

import errno
import platform
import re
import struct
from pathlib import Path

import pytest

from rock_env.backends.process import seccomp
from rock_env.backends.process.backend import ProcessBackend, why_not_fenced
from rock_env.spec import SandboxSpec

ARCH = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
PLAIN = {  # number of: read, clone, ioctl, socket, openat, execve, clone3
    "x86_64": {"read": 0, "clone": 56, "ioctl": 16, "socket": 41, "openat": 257, "execve": 59, "clone3": 435},
    "aarch64": {
        "read": 63,
        "clone": 220,
        "ioctl": 29,
        "socket": 198,
        "openat": 56,
        "execve": 221,
        "clone3": 435,
    },
}
ALLOWED, KILLED = "allowed", "killed"


def decide(machine: str, number: int, *arguments: int, arch: int | None = None) -> str | int:
    """Run the filter over one call, as the kernel does; return ALLOWED, KILLED or the errno it fails with."""
    program = seccomp.assemble(machine)
    padded = (*arguments, *[0] * (6 - len(arguments)))
    data = struct.pack("<IIQ6Q", number, ARCH[machine] if arch is None else arch, 0, *padded)
    accumulator, position = 0, 0
    for _ in range(len(program) // 8):
        code, if_true, if_false, k = struct.unpack_from("=HBBI", program, 8 * position)
        position += 1
        if code == 0x20:  # load a word
            (accumulator,) = struct.unpack_from("<I", data, k)
        elif code == 0x06:
            kinds: dict[int, str | int] = {0x7FFF0000: ALLOWED, 0x80000000: KILLED}
            return kinds.get(k, k & 0xFFFF)
        else:
            taken = {0x15: accumulator == k, 0x35: accumulator >= k, 0x45: bool(accumulator & k)}[code]
            position += if_true if taken else if_false
    raise AssertionError("the program ran off its end")


@pytest.fixture(params=seccomp.MACHINES)
def machine(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_every_denied_call_is_refused(machine: str) -> None:
    column = seccomp.MACHINES.index(machine)
    for name, numbers in seccomp.DENIED.items():
        assert decide(machine, numbers[column]) == errno.EPERM, name


def test_what_programs_live_on_is_allowed(machine: str) -> None:
    for name in ("read", "openat", "execve"):
        assert decide(machine, PLAIN[machine][name]) == ALLOWED, name
    refused = {number for number in range(600) if decide(machine, number) != ALLOWED}
    assert len(refused) < 70, "a deny-list, not more"


def test_calls_of_another_machine_kill(machine: str) -> None:
    i386, arm = 0x40000003, 0x40000028
    other = next(arch for name, arch in ARCH.items() if name != machine)
    for arch in (i386, arm, other, 0):
        assert decide(machine, PLAIN[machine]["read"], arch=arch) == KILLED
    if machine == "x86_64":
        assert decide(machine, 0x40000000) == KILLED, "x32"


def test_new_namespaces_are_refused_and_threads_are_not(machine: str) -> None:
    clone = PLAIN[machine]["clone"]
    thread = 0x3D0F00
    assert decide(machine, clone, thread) == decide(machine, clone, 17) == ALLOWED
    for flag in (0x20000, 0x2000000, 0x4000000, 0x8000000, 0x10000000, 0x20000000, 0x40000000):
        assert decide(machine, clone, flag | 17) == errno.EPERM, hex(flag)
    assert decide(machine, PLAIN[machine]["clone3"]) == errno.ENOSYS, "so that the C library uses clone"


def test_terminals_cannot_be_typed_into(machine: str) -> None:
    ioctl = PLAIN[machine]["ioctl"]
    assert decide(machine, ioctl, 0, 0x5412) == decide(machine, ioctl, 0, 0x541C) == errno.EPERM
    assert decide(machine, ioctl, 0, 0x5413) == ALLOWED, "the size of a window"


def test_only_known_kinds_of_sockets(machine: str) -> None:
    number = PLAIN[machine]["socket"]
    assert [decide(machine, number, family) for family in (1, 2, 10, 16)] == [ALLOWED] * 4
    for family in (0, 3, 17, 38, 40):  # vsock, 40, would lead out of the box to a hypervisor
        assert decide(machine, number, family) == errno.EAFNOSUPPORT


@pytest.mark.parametrize(
    ("machine", "header"),
    [
        ("x86_64", "/usr/include/x86_64-linux-gnu/asm/unistd_64.h"),
        ("aarch64", "/usr/include/asm-generic/unistd.h"),
    ],
)
def test_the_numbers_are_the_kernels(machine: str, header: str) -> None:
    if not Path(header).exists():
        pytest.skip(f"needs {header} (Debian: linux-libc-dev)")
    found = re.findall(r"#define __NR(?:3264)?_(\w+)\s+(\d+)\b", Path(header).read_text())
    known = {name: int(number) for name, number in found}
    column = seccomp.MACHINES.index(machine)
    ours = {name: numbers[column] for name, numbers in seccomp.DENIED.items()} | PLAIN[machine]
    assert {name: known[name] for name in ours if name in known} == {
        name: number for name, number in ours.items() if name in known
    }
    assert len(known.keys() & ours.keys()) > 45


CALLS = """
import ctypes, os, socket, sys
libc = ctypes.CDLL(None, use_errno=True)
def said(name, result):
    print(name, "ok" if result >= 0 else os.strerror(ctypes.get_errno()))
def call(name, number, *arguments):
    said(name, libc.syscall(number, *arguments))
said("mount", libc.mount(b"x", b"/tmp", b"tmpfs", 0, None))
said("unshare", libc.unshare(0x10000000))
said("setns", libc.setns(0, 0))
said("ptrace", libc.ptrace(0, 0, 0, 0))
said("clone", libc.syscall({clone}, 0x10000000 | 17, 0, 0, 0, 0))
call("clone3", 435, 0, 0)
call("io_uring", 425, 8, 0)
call("bpf", {bpf}, 0, 0, 0)
call("keyctl", {keyctl}, 0, 0, 0)
call("userfaultfd", {userfaultfd}, 0)
try:
    socket.socket(40, socket.SOCK_STREAM)
except OSError as error:
    print("vsock", error.strerror)
if os.fork() == 0:
    os._exit(0)
os.wait()
print("fork ok")
"""


async def test_the_kernel_obeys_in_a_box(tmp_path: Path) -> None:
    if why := await why_not_fenced():
        pytest.skip(f"no isolation here: {why}")
    column = seccomp.MACHINES.index(platform.machine())
    numbers = {name: seccomp.DENIED[name][column] for name in ("bpf", "keyctl", "userfaultfd")}
    script = CALLS.format(clone=PLAIN[platform.machine()]["clone"], **numbers)
    backend = ProcessBackend(root=tmp_path, isolation="namespaces")
    try:
        box = await backend.create(SandboxSpec(), sandbox_id="box")
        result = await box.exec(["python3", "-c", script])
        told = dict(line.split(" ", 1) for line in result.stdout.decode().splitlines())
        status = (await box.exec(["grep", "-h", "Seccomp:", "/proc/1/status", "/proc/self/status"])).stdout
    finally:
        await backend.close()
    assert told.pop("fork") == "ok"
    assert told.pop("clone3") == "Function not implemented"
    assert told.pop("vsock") == "Address family not supported by protocol"
    assert set(told.values()) == {"Operation not permitted"}, told
    assert len(told) == 9
    assert status.split() == [b"Seccomp:", b"2"] * 2, "the guest is filtered like its commands"
