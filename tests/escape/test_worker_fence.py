"""Workers whose code does what an action says: each attack on the host is refused or bounded, and neighbours go on."""

from __future__ import annotations

import os
import resource
import select
import signal
import socket
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest
from fences import why_not_isolated
from rest_servers import RestServer, guarded_rest
from secure_servers import token

from rock_env.backends.process import cgroups
from rock_env.env_workers.fencing import Fencing
from rock_env.env_workers.worker_view import WorkerView
from rock_env.errors import ResourceExhausted
from rock_env.proto.v1 import env_pb2 as pb
from rock_env.proto.v1.env_pb2_grpc import EnvServiceStub
from rock_env.wire.channel import CLIENT_OPTIONS, target

ATTACKING = Path(__file__).with_name("attacking_env.py")
BOXED = Path(__file__).with_name("boxed_env.py")
REFUSED = "refused"
MOST_MIB = 1024
"""What the workers of this server may allocate."""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RestServer]:
    if why_not_isolated():
        pytest.skip(f"no namespaces here: {why_not_isolated()}")
    folder = tmp_path_factory.mktemp("fence")
    (folder / "data").write_text("data")
    (folder / "data").chmod(0o600)
    more = [f"--env={ATTACKING}:ATTACKING", f"--env={BOXED}:BOXED", "--isolation=namespaces"]
    more += [f"--worker-memory-gib={MOST_MIB / 1024}", f"--data=data={folder}/data"]
    with guarded_rest(folder, more) as running:
        yield running


class Player:
    """One tenant's episodes."""

    def __init__(self, stub: Any, key: str) -> None:
        self._stub, self._who, self._turn = stub, (("authorization", f"Bearer {key}"),), 0
        self._env_id = ""

    async def make(self, env: str = "attacking") -> Player:
        made = await self._stub.Make(pb.MakeRequest(env=env), metadata=self._who)
        self._env_id, self._turn = made.env_id, 1
        reset = pb.ResetRequest(env_id=made.env_id, sequence=1, idempotency_key="r", task_id="train/0")
        await self._stub.Reset(reset, metadata=self._who)
        return self

    async def does(self, program: str) -> str:
        """Return what a program said, or that it was refused."""
        self._turn += 1
        guarded = f"try:\n{_indented(program)}\nexcept OSError: said = {REFUSED!r}"
        step = pb.StepRequest(
            env_id=self._env_id, sequence=self._turn, idempotency_key=f"{self._turn}", action=guarded
        )
        return str((await self._stub.Step(step, metadata=self._who)).observation)


def _indented(program: str) -> str:
    return "\n".join(f"    {line}" for line in program.strip().splitlines())


@asynccontextmanager
async def playing(server: RestServer, tenant: str = "") -> AsyncIterator[Player]:
    key = token(server.tokens, tenant, "sandbox", "env") if tenant else server.key
    async with grpc.aio.insecure_channel(target(server.grpc), options=CLIENT_OPTIONS) as channel:
        yield await Player(EnvServiceStub(channel), key).make()


def descendants(pid: int) -> list[int]:
    """Return all processes that come from one, without it."""
    children = [
        int(child)
        for task in Path(f"/proc/{pid}/task").iterdir()
        for child in (task / "children").read_text().split()
    ]
    return children + [each for child in children for each in descendants(child)]


def read(pid: int, name: str) -> str:
    return Path(f"/proc/{pid}/{name}").read_text()


def namespace(pid: int, kind: str) -> Path:
    return Path(f"/proc/{pid}/ns/{kind}").readlink()


CALL = "import ctypes, os; libc = ctypes.CDLL(None, use_errno=True)\n"
ATTEMPTS = {
    "ptrace": "said = libc.ptrace(16, os.getppid(), 0, 0)",
    "mount": "said = libc.mount(b'none', b'/tmp', b'tmpfs', 0, None)",
    "remount writable": "said = libc.mount(None, b'/usr', None, 32 | 4096, None)",
    "umount": "said = libc.umount2(b'/usr', 2)",
    "unshare a user namespace": "said = libc.unshare(0x10000000)",
    "clone into a user namespace": "said = libc.syscall(56, 0x10000011, 0, 0, 0, 0)",
    "keyctl": "said = libc.syscall(250, 0, -3, 1)",
    "add a key": "said = libc.syscall(248, b'user', b'a', b'b', 1, -3)",
    "bpf": "said = libc.syscall(321, 0, 0, 0)",
    "io_uring": "said = libc.syscall(425, 1, 0)",
    "change the user": "said = libc.setresuid(0, 0, 0)",
    "set the host's name": "said = libc.sethostname(b'x', 1)",
    "vsock": "said = libc.socket(40, 1, 0)",
    "raw socket": "said = libc.socket(2, 3, 1)",
}


@pytest.mark.parametrize("attempt", ATTEMPTS)
async def test_what_reaches_out_of_the_fence_is_refused(server: RestServer, attempt: str) -> None:
    async with playing(server) as player:
        assert await player.does(CALL + ATTEMPTS[attempt]) == "-1"


async def test_limits_cannot_be_raised(server: RestServer) -> None:
    program = """
import resource
raised = []
for name in dir(resource):
    if name.startswith("RLIMIT_"):
        number = getattr(resource, name)
        hard = resource.getrlimit(number)[1]
        if hard != resource.RLIM_INFINITY:
            try:
                resource.setrlimit(number, (hard, hard + 1))
                raised.append(name)
            except (ValueError, OSError):
                pass
said = raised
"""
    async with playing(server) as player:
        assert await player.does(program) == "[]"


async def test_nothing_that_listens_on_the_host_is_reached(server: RestServer, tmp_path: Path) -> None:
    async with playing(server) as player:
        with (
            socket.create_server(("127.0.0.1", 0)) as tcp,
            socket.socket(socket.AF_UNIX) as named,
            socket.socket(socket.AF_UNIX) as abstract,
        ):
            named.bind(f"{tmp_path}/s")
            abstract.bind(f"\0{tmp_path.name}")
            named.listen()
            abstract.listen()
            connect = "import socket; s = socket.socket(socket.{}); s.connect({!r}); said = 'connected'"
            for family, address in (
                ("AF_INET", tcp.getsockname()),
                ("AF_INET", ("127.0.0.1", int(server.grpc.rpartition(":")[2]))),
                ("AF_UNIX", named.getsockname()),
                ("AF_UNIX", abstract.getsockname()),
            ):
                with socket.socket(getattr(socket, family)) as own:
                    own.connect(address)  # from here it is reached
                assert await player.does(connect.format(family, address)) == REFUSED, address


async def test_a_worker_listens_in_a_network_of_its_own(server: RestServer) -> None:
    listen = "import socket; global s; s = socket.create_server(('127.0.0.1', 0)); said = s.getsockname()[1]"
    async with playing(server) as player:
        port = int(await player.does(listen))
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", port))


async def test_a_worker_that_kills_whatever_it_can_ends_alone(server: RestServer) -> None:
    kill = """
import os
for pid in range(1, 1 << 17):
    if pid != os.getpid():
        try:
            os.kill(pid, 9)
        except OSError:
            pass
said = "done"
"""
    async with playing(server, "green") as neighbour, playing(server) as player:
        await neighbour.does("global kept; kept = 7")
        assert await player.does(kill) == "done"
        assert await player.does("said = 'still here'") == "still here", "what reaps cannot be killed"
        with pytest.raises(grpc.aio.AioRpcError, match=r"died: it was killed by signal 9"):
            await player.does("import os; os.kill(os.getpid(), 9)")
        assert await neighbour.does("said = 'still here'") == "still here"
        assert await (await player.make()).does("said = 'again'") == "again"


async def test_processes_of_a_worker_are_bounded_and_end_with_it(server: RestServer) -> None:
    bomb = """
import os, signal
count = 0
try:
    while count < 5000:
        if os.fork() == 0:
            signal.pause()
        count += 1
except BlockingIOError:
    pass
said = count
"""
    async with playing(server, "bomber") as player:
        before = set(descendants(server.pid))
        assert 256 <= int(await player.does(bomb)) < 1100
        assert len(descendants(server.pid)) > 256
        with pytest.raises(grpc.aio.AioRpcError, match=r"signal 9"):
            await player.does("os = __import__('os'); os.kill(os.getpid(), 9)")
        assert set(descendants(server.pid)) <= before


async def test_memory_of_a_worker_is_bounded_in_all_and_named(server: RestServer) -> None:
    try:
        cgroups.find()
    except OSError as error:
        pytest.skip(f"no control groups here: {error}")
    # Shared memory counts for no limit of one process.
    fill = f"import mmap; m = mmap.mmap(-1, {4 * MOST_MIB} << 20)\nfor _ in range({4 * MOST_MIB}): m.write(bytes(1 << 20))"
    async with playing(server, "green") as neighbour, playing(server, "eater") as player:
        with pytest.raises(grpc.aio.AioRpcError, match=r"died: its memory was full"):
            await player.does(fill)
        assert await neighbour.does("said = 'still here'") == "still here"


async def test_what_a_worker_prints_steers_no_terminal_and_cuts_no_log(server: RestServer) -> None:
    log = server.tokens.with_name("log")
    cut = "import os; os.write(2, b'\\x1b]0;title\\x07 said by a worker\\n'); os.ftruncate(2, 0)"
    async with playing(server) as player:
        assert await player.does(cut) == REFUSED
        await player.does("import os; os.close(1); os.close(2); os.kill(os.getppid(), 0)")
        with pytest.raises(grpc.aio.AioRpcError):
            await player.does("import os; os._exit(3)")
    assert "\\x1b]0;title\\x07 said by a worker\n" in log.read_text()
    assert "\x1b" not in log.read_text()


async def test_workers_have_no_rights_and_a_user_of_their_own(server: RestServer) -> None:
    async with playing(server, "green"), playing(server) as player:
        await player.make("boxed")  # rules of an environment with a sandbox
        lines = {pid: read(pid, "cmdline").split("\0") for pid in descendants(server.pid)}
        workers = [pid for pid, words in lines.items() if "rock_env.env_workers" in " ".join(words[1:4])]
        assert len(workers) >= 3
        users = []
        for pid in workers:
            lines = read(pid, "status").splitlines()
            seen = {name: rest.split() for name, _, rest in (line.partition(":") for line in lines)}
            users.append(seen["Uid"][0])
            assert seen["CapEff"] == seen["CapPrm"] == seen["CapBnd"] == ["0" * 16]
            assert (seen["NoNewPrivs"], seen["Seccomp"]) == (["1"], ["2"])
            for kind in ("cgroup", "ipc", "mnt", "net", "pid", "user", "uts"):
                assert namespace(pid, kind) != namespace(server.pid, kind), kind
        if os.geteuid() == 0:  # else there is one user
            assert len(set(users)) == len(users)
            assert "0" not in users


async def test_files_of_the_operator_alone_are_read_where_they_are_shown(server: RestServer) -> None:
    data = server.tokens.with_name("data")
    system = subprocess.run(["stat", "-f", "-c", "%T", data], capture_output=True, text=True, check=True)  # noqa: ASYNC221
    if system.stdout.strip() == "overlayfs":
        pytest.skip("overlayfs maps no owners of files")
    async with playing(server) as player:
        assert await player.does(f"said = open({str(data)!r}).read()") == "data"
        assert await player.does(f"open({str(data)!r}, 'a').write('x')") == REFUSED


async def test_workers_end_when_their_server_is_killed(tmp_path: Path) -> None:
    if why_not_isolated():
        pytest.skip(f"no namespaces here: {why_not_isolated()}")
    with guarded_rest(tmp_path, [f"--env={ATTACKING}:ATTACKING", "--isolation=namespaces"]) as server:
        async with playing(server) as player:
            await player.does(
                "import os\nfor _ in range(3):\n  if os.fork() == 0: __import__('signal').pause()"
            )
            handles = [os.pidfd_open(pid) for pid in descendants(server.pid)]
            assert len(handles) >= 6
            os.kill(server.pid, signal.SIGKILL)
            for handle in handles:
                assert select.select([handle], [], [], 60)[0], "a process of the killed server lives on"
                os.close(handle)


async def test_a_full_machine_is_no_machine_without_fences(server: RestServer) -> None:
    """What cannot be seen for lack of descriptors is looked at again, and no worker goes without a fence meanwhile."""
    fencing = Fencing(lambda: WorkerView((), ()), "where possible")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, hard))
    try:
        with pytest.raises(ResourceExhausted, match="Too many open files"):
            await fencing.of()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert await fencing.of() is not None


async def test_a_folder_of_many_modules_fits_a_workers_command_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(3000):
        (tmp_path / f"module_{number}.py").touch()
    monkeypatch.syspath_prepend(str(tmp_path))
    command = WorkerView((), ()).command(["python"], {}, "", {})
    assert max(map(len, command)) < 128 << 10
