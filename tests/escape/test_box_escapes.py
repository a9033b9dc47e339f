"""What code in a box tries against its box, its neighbours and the machine; on every backend that runs here.

Each test does the harm for real and then asserts three things: it was contained, the box's own server side still
answers truthfully, and a second box is not disturbed.
"""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
import pytest
from boxes import Boxes
from waiting import until

from rock_env.errors import InfraError, InvalidArgument, NotFound
from rock_env.sandbox import ExecResult, Sandbox
from rock_env.spec import Resources

MIB = 1 << 20
SMALL = Resources(cpus=1.0, memory_bytes=96 * MIB, disk_bytes=48 * MIB, pids=48)


async def sh(box: Sandbox, script: str, *, timeout_s: float = 30.0) -> ExecResult:
    return await box.exec(["/bin/sh", "-c", script], timeout_s=timeout_s)


async def lives(box: Sandbox) -> None:
    result = await sh(box, "echo alive")
    assert result.stdout == b"alive\n", result


@pytest.fixture
async def box(boxes: Boxes) -> Sandbox:
    return await boxes.make(SMALL)


@pytest.fixture
async def neighbour(boxes: Boxes) -> Sandbox:
    return await boxes.make(SMALL)


async def test_a_fork_bomb_fills_its_own_box_only(box: Sandbox, neighbour: Sandbox) -> None:
    mark = (
        f"bomb-{os.getpid()}"  # each part of the bomb is a fork of its shell, with the shell's command line
    )
    bomb = await sh(box, f": {mark}; bomb() {{ bomb | bomb & }}; bomb; sleep 2; exit 7", timeout_s=20.0)
    assert bomb.infra_error == ""
    lines = [str(p.info["cmdline"]) for p in psutil.process_iter(["cmdline"])]
    assert sum(mark in line for line in lines) < SMALL.pids + 64  # they come and go while one looks
    await lives(neighbour)
    await box.kill_all()
    await lives(box)


async def test_zombies_are_reaped(box: Sandbox) -> None:
    for _ in range(3):
        assert (await sh(box, "i=0; while [ $i -lt 30 ]; do (sleep 0 &) ; i=$((i+1)); done")).ok
    few = "n=0; for s in /proc/[0-9]*/stat; do n=$((n+1)); done; [ $n -lt 12 ]"
    assert (await sh(box, f"until {few}; do sleep 0.1; done")).ok


async def test_memory_that_is_not_its_own_is_refused_and_told(box: Sandbox, neighbour: Sandbox) -> None:
    greedy = await sh(box, "exec tail /dev/zero")
    assert (greedy.signal, greedy.oom_killed, greedy.infra_error) == (9, True, ""), greedy
    many = await sh(
        box,
        "for i in 1 2 3 4 5 6 7 8; do head -c 30000000 /dev/zero | tail -c 29000000 | sleep 1 & done; wait",
    )
    assert many.infra_error == ""
    await lives(neighbour)
    await lives(box)


@pytest.mark.parametrize("way", ["one file", "many files"])
async def test_a_full_disk_is_the_boxes_own(box: Sandbox, neighbour: Sandbox, way: str) -> None:
    one = "dd if=/dev/zero of=big bs=1048576 count=400"
    many = (
        "i=0; while [ $i -lt 100 ]; do dd if=/dev/zero of=f$i bs=1048576 count=4 || exit 3; i=$((i+1)); done"
    )
    full = await sh(box, one if way == "one file" else many, timeout_s=60.0)
    assert not full.ok
    if not full.infra_error:  # else the whole box was ended, which is as good, and said why
        used = await sh(box, "du -sm . | cut -f1")
        assert int(used.stdout or b"0") <= SMALL.disk_bytes // MIB + 4
    else:
        assert "disk" in full.infra_error
    await lives(neighbour)


async def test_open_files_are_limited(box: Sandbox, neighbour: Sandbox) -> None:
    hungry = 'i=10; while [ $i -lt 5000 ]; do eval "exec $i</dev/null" || exit 9; i=$((i+1)); done'
    assert not (await sh(box, hungry)).ok
    await lives(neighbour)
    await lives(box)


async def test_the_guest_cannot_be_killed_or_read(box: Sandbox) -> None:
    for attack in (
        "kill -9 1",
        "kill -STOP 1",
        "kill -9 -1",
        "cat /proc/1/environ",
        "cat /proc/1/mem",
        "readlink /proc/1/fd/3",
        "cat /proc/1/maps",
        "ls /proc/1/root/",
        "echo x > /proc/1/mem",
    ):
        result = await sh(box, attack)
        assert result.infra_error == "", attack
        assert not result.ok or attack.startswith("kill"), attack
        assert b"\0" not in result.stdout, attack
    await lives(box)


async def test_commands_hold_no_privilege(box: Sandbox) -> None:
    status = (await sh(box, "cat /proc/self/status")).stdout.decode()
    fields = dict(line.split(":\t", 1) for line in status.splitlines() if ":\t" in line)
    for capabilities in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"):
        assert int(fields[capabilities], 16) == 0, (capabilities, fields[capabilities])
    assert fields["NoNewPrivs"].strip() == "1"
    assert fields["Seccomp"].strip() == "2"


@pytest.mark.parametrize(
    "attack",
    [
        "mount -t tmpfs none /tmp",
        "mount -t proc none /tmp",
        "mount --bind / /tmp",
        "mount -o remount,rw /",
        "umount /proc",
        "unshare -m true",
        "unshare -U true",
        "unshare -r true",
        "chroot / true",
        "mknod disk b 8 0",
        "mknod memory c 1 1",
        "hostname other",
        "echo 1 > /proc/sys/kernel/panic",
        "echo c > /proc/sysrq-trigger",
        "echo '|/bin/true' > /proc/sys/kernel/core_pattern",
        "cat /proc/kcore > /dev/null",
        "cat /dev/mem",
        "cat /dev/kmsg",
        "dmesg -c",
        "echo /bin/sh > /sys/fs/cgroup/release_agent",
        "mkdir /sys/fs/cgroup/memory/mine",
        "echo 0 > /sys/fs/cgroup/memory/memory.limit_in_bytes",
        "swapoff -a",
        "reboot -f",
        "ip link add dummy0 type dummy",
    ],
)
async def test_kernel_doors_are_shut(box: Sandbox, attack: str) -> None:
    result = await sh(box, attack)
    assert result.infra_error == ""
    assert not result.ok
    await lives(box)


async def test_the_files_of_the_machine_are_not_there(box: Sandbox, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("of the machine")
    for path in (str(secret), "/etc/shadow", str(Path.home() / ".bash_history"), "/var/run/docker.sock"):
        assert b"of the machine" not in (await sh(box, f"cat {path}")).stdout
    assert not (await sh(box, f"cat {secret}")).ok
    assert not (await sh(box, "test -S /var/run/docker.sock")).ok
    for target in (secret, "/proc/1/root/etc/shadow", "/proc/self/root/../../../etc/shadow"):
        await sh(box, f"ln -sfn {target} way-out")
        with pytest.raises((InvalidArgument, NotFound)):
            await box.read_file("way-out")


async def test_links_do_not_lead_writes_out(box: Sandbox, tmp_path: Path) -> None:
    await sh(box, f"ln -s {tmp_path} out; ln -s /opt/rock rock; ln -s /proc/self/cwd/../../etc up")
    for path in (f"{tmp_path}/x", "out/x", "rock/x", "/opt/rock/x", "../../../opt/rock/x", "/proc/self/x"):
        with suppress(
            InvalidArgument, NotFound, InfraError
        ):  # or it lands in the box's own files of that name
            await box.write_file(path, b"x")
    with pytest.raises((InvalidArgument, NotFound, InfraError)):
        await box.write_file("/opt/rock/x", b"x")
    assert os.listdir(tmp_path) in ([], ["node"])  # noqa: PTH208
    await lives(box)


@contextmanager
def listener(address: tuple[str, int] | str) -> Iterator[tuple[socket.socket, list[bytes]]]:
    """Listen on this machine and keep what arrives."""
    family = socket.AF_UNIX if isinstance(address, str) else socket.AF_INET
    heard: list[bytes] = []
    with socket.socket(family, socket.SOCK_STREAM) as server:
        server.bind(address)
        server.listen()

        def serve() -> None:
            while True:
                try:
                    connection, _ = server.accept()
                except OSError:
                    return
                with connection:
                    heard.append(connection.recv(16))

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield server, heard
        server.shutdown(socket.SHUT_RDWR)
        thread.join()


def own_addresses() -> list[str]:
    """Return this machine's IPv4 addresses, the bridges of containers included."""
    return sorted(
        {
            address.address
            for addresses in psutil.net_if_addrs().values()
            for address in addresses
            if address.family == socket.AF_INET
        }
    )


async def test_no_network_reaches_the_machine_or_the_neighbours(box: Sandbox) -> None:
    with listener(("0.0.0.0", 0)) as (server, heard):
        port = server.getsockname()[1]
        for host in (*own_addresses(), "169.254.169.254", "localhost"):
            result = await sh(
                box,
                f"echo hello | nc -w 1 {host} {port} || (exec 3<>/dev/tcp/{host}/{port} && echo hello >&3)",
            )
            assert not result.ok, host
    assert not any(b"hello" in each for each in heard)
    interfaces = (await sh(box, "cat /proc/net/dev")).stdout.decode()
    names = {line.split(":")[0].strip() for line in interfaces.splitlines() if ":" in line}
    assert {name for name in names if name not in ("lo", "tunl0", "sit0", "ip6tnl0", "gre0")} == set()


async def test_abstract_sockets_of_the_machine_are_out_of_reach(boxes: Boxes, box: Sandbox) -> None:
    name = f"\0rock-escape-{os.getpid()}"
    with listener(name):
        sockets = (await sh(box, "cat /proc/net/unix")).stdout.decode()
    assert name[1:] not in sockets


async def test_output_without_end_costs_the_server_nothing(box: Sandbox) -> None:
    before = psutil.Process().memory_info().rss
    flood = await box.exec(["/bin/sh", "-c", "yes"], timeout_s=5.0, max_output_bytes=MIB)
    assert flood.timed_out
    assert flood.truncated
    assert len(flood.stdout) == MIB
    assert psutil.Process().memory_info().rss - before < 64 * MIB
    await lives(box)


async def test_what_detached_itself_dies_with_its_box(boxes: Boxes) -> None:
    box = await boxes.make(SMALL)
    mark = f"98765{os.getpid()}"
    await sh(
        box,
        f"(setsid sleep {mark} >/dev/null 2>&1 &) ; (trap '' TERM HUP; sleep {mark} >/dev/null 2>&1 &)",
    )

    def running() -> int:
        return sum(mark in (p.info["cmdline"] or ()) for p in psutil.process_iter(["cmdline"]))

    await until(lambda: running() == 2)
    await box.close()
    assert running() == 0
