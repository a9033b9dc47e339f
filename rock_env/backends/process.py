"""The `process` backend: boxes made of processes, fenced in by bubblewrap where this machine can.

Used by the service core and the SandboxService; satisfies `backends.base.Backend`. Each box has one guest process,
which all commands of the box descend from, and a folder of its own on disk. Where bubblewrap cannot run,
the same guest runs bare: commands work and are cleaned up after, but nothing is hidden from them; that is said
once, loudly, and can be read from `isolation`.

What a box may use: `pids` (bubblewrap only), `memory_bytes` as address space *per process*, `disk_bytes` as size *per
file*. `cpus` and `lifetime_s` are not enforced here, and a killed-for-memory command cannot be told apart.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import getpass
import logging
import marshal
import os
import re
import resource
import shutil
import stat
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Literal

from rock_env.backends.bubblewrap import BOX_PYTHON, BOX_TOOLS, Bubblewrap, box_identity
from rock_env.backends.guest_link import Command, FileEntry, GuestLink
from rock_env.backends.toolkit import Toolkit
from rock_env.errors import InfraError, InvalidArgument, NotFound, Unimplemented
from rock_env.guest import init as guest
from rock_env.sandbox import ExecResult
from rock_env.spec import SandboxSpec

__all__ = ["Isolation", "ProcessBackend", "ProcessSandbox"]

Isolation = Literal["bubblewrap", "none"]
MAX_READ_BYTES = 64 << 20
"""What `read_file` returns at most; a part of a larger file can be read with `read_range`."""
_HOME = "/home/agent"
_OPEN_FILES = 1024
_ROOT_PREFIX = "rock-boxes-"
_ABANDONED_S = 60.0
"""A younger folder may belong to a server that has not locked it yet."""
_SYSTEM_FOLDERS = {
    "/bin",
    "/dev",
    "/etc",
    "/home",
    "/lib",
    "/lib64",
    "/opt",
    "/proc",
    "/sbin",
    "/tmp",
    "/usr",
}
_SYSTEM_PATH = "/usr/local/bin:/usr/bin:/bin"

log = logging.getLogger(__name__)


class ProcessSandbox:
    """One box; satisfies `rock_env.sandbox.Sandbox`. Made by `ProcessBackend.create`."""

    def __init__(
        self,
        sandbox_id: str,
        link: GuestLink,
        *,
        isolation: Isolation,
        clean_up: Callable[[], Awaitable[None]],
    ) -> None:
        self._id = sandbox_id
        self._link = link
        self._clean_up = clean_up
        self._closing: asyncio.Task[None] | None = None
        self.isolation: Isolation = isolation

    @property
    def id(self) -> str:
        return self._id

    @property
    def pid(self) -> int:
        """Return the host process id of the program that holds the box."""
        return self._link.pid

    @property
    def failure(self) -> str:
        """Return why the box can no longer be used, or an empty string."""
        return self._link.failure

    async def lost(self) -> str:
        """Wait until the box can no longer be used, by failure or by `close`, and return why."""
        return await asyncio.shield(self._link.lost)

    def start(
        self,
        argv: Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        cwd: str | None = None,
        timeout_s: float = 60.0,
        max_output_bytes: int = 1 << 20,
    ) -> Command:
        """Start a command whose output is streamed; use it with `async with`, which kills what is left of it."""
        self._check_open()
        if not argv or any("\0" in part for part in argv):
            raise InvalidArgument(f"argv must be a program and its arguments without NUL, got {list(argv)!r}")
        return self._link.run(
            argv, env=env or {}, cwd=cwd or ".", timeout_s=timeout_s, max_output_bytes=max_output_bytes
        )

    async def exec(
        self,
        argv: Sequence[str],
        *,
        stdin: bytes = b"",
        env: Mapping[str, str] | None = None,
        cwd: str | None = None,
        timeout_s: float = 60.0,
        max_output_bytes: int = 1 << 20,
    ) -> ExecResult:
        """Run `argv` to its end. `max_output_bytes` bounds stdout and stderr each; their heads are kept.

        A program that cannot be run exits with 127 (not found) or 126, as in a shell. Processes the command
        left in the background live on until the box closes; their later output is not collected.
        """
        command = self.start(argv, env=env, cwd=cwd, timeout_s=timeout_s, max_output_bytes=max_output_bytes)
        async with command:
            command.write_stdin(stdin)
            command.close_stdin()
            return await command.result()

    async def kill_all(self) -> None:
        """Kill every process in the box, however far it detached itself. The box stays usable."""
        self._check_open()
        await self._link.ask(guest.KILL_ALL)

    async def pause(self) -> None:
        """Stop every process in the box. Their memory stays; the timeouts of running commands go on counting."""
        self._check_open()
        await self._link.ask(guest.PAUSE)

    async def resume(self) -> None:
        """Let what `pause` stopped go on. What a command itself had stopped before stays stopped."""
        self._check_open()
        await self._link.ask(guest.RESUME)

    async def read_file(self, path: str) -> bytes:
        """Return a whole file of at most `MAX_READ_BYTES`. Raise `InvalidArgument` beyond that."""
        content = await self.read_range(path, offset=0, length=MAX_READ_BYTES + 1)
        if len(content) > MAX_READ_BYTES:
            raise InvalidArgument(f"{path!r} is larger than {MAX_READ_BYTES} bytes; read it in parts")
        return content

    async def read_range(self, path: str, *, offset: int, length: int) -> bytes:
        """Return up to `length` bytes from `offset`."""
        self._check_open()
        return b"".join(await self._link.ask(guest.READ, marshal.dumps((path, offset, length), 2)))

    async def write_file(self, path: str, content: bytes, *, mode: int = 0o644, append: bool = False) -> None:
        """Create or replace a file (atomically), or append to it; parents are made."""
        self._check_open()
        await self._link.ask(guest.WRITE, marshal.dumps((path, content, mode & 0o7777, append), 2))

    async def stat(self, path: str) -> FileEntry:
        """Describe one file; a symbolic link itself, not what it points to."""
        self._check_open()
        blocks = await self._link.ask(guest.STAT, path.encode(errors="surrogateescape"))
        return _entry(blocks[0])

    async def list_files(self, path: str, *, recursive: bool = False) -> list[FileEntry]:
        """Describe a folder's entries by their paths from it; links are not followed."""
        self._check_open()
        return [
            _entry(block) for block in await self._link.ask(guest.LIST, marshal.dumps((path, recursive), 2))
        ]

    async def close(self) -> None:
        if self._closing is None:
            self._closing = asyncio.ensure_future(self._destroy())
        # Shielded: a cancelled caller must not leave half a box; another call waits for the same end.
        await asyncio.shield(self._closing)

    async def _destroy(self) -> None:
        await self._link.close()
        await self._clean_up()
        log.debug("sandbox closed sandbox_id=%s", self._id)

    def _check_open(self) -> None:
        if self._closing is not None:
            raise NotFound(f"sandbox {self._id!r} is closed")


class ProcessBackend:
    """Make and destroy process sandboxes. `isolation="bubblewrap"` refuses to run without it; `auto` falls back."""

    def __init__(
        self,
        *,
        root: Path | None = None,
        isolation: Literal["auto", "bubblewrap", "none"] = "auto",
        python_packages: tuple[str, ...] = ("pytest",),
    ) -> None:
        self._wanted = isolation
        self._python_packages = python_packages
        self._parent = root
        self._lock = asyncio.Lock()
        self._root: Path | None = None
        self._lock_fd = -1
        self._fence: Bubblewrap | None = None
        self._tools: Toolkit | None = None
        self._boxes: dict[str, ProcessSandbox] = {}
        self._closed = False

    async def isolation(self) -> Isolation:
        """Return what fences this backend's boxes in. The first call finds out."""
        await self._prepare()
        return "none" if self._fence is None else "bubblewrap"

    async def create(self, spec: SandboxSpec, *, sandbox_id: str) -> ProcessSandbox:
        """Start one box. Raise `Unimplemented` for what only other backends offer."""
        _check(spec)
        root, tools = await self._prepare()
        folder = root / sandbox_id
        try:
            folder.mkdir(mode=0o700)
        except FileExistsError as error:
            raise InvalidArgument(f"a sandbox {sandbox_id!r} exists already") from error
        try:
            if self._fence is None:
                argv, config = _bare(spec, folder, tools)
            else:
                argv, config = _fenced(spec, folder, (self._fence, tools))
            link = await GuestLink.open(argv, cwd=str(folder), config=config)
        except BaseException:
            await asyncio.to_thread(_remove_tree, folder)
            raise

        async def clean_up() -> None:
            await asyncio.to_thread(_remove_tree, folder)
            self._boxes.pop(sandbox_id, None)

        isolation: Isolation = "none" if self._fence is None else "bubblewrap"
        box = ProcessSandbox(sandbox_id, link, isolation=isolation, clean_up=clean_up)
        self._boxes[sandbox_id] = box
        log.debug(
            "sandbox started sandbox_id=%s spec=%s isolation=%s", sandbox_id, spec.digest, box.isolation
        )
        return box

    async def close(self) -> None:
        self._closed = True
        async with asyncio.TaskGroup() as group:
            for box in tuple(self._boxes.values()):
                group.create_task(box.close())
        if self._root is not None:
            await asyncio.to_thread(_remove_tree, self._root)
            os.close(self._lock_fd)
            self._root = None

    async def _prepare(self) -> tuple[Path, Toolkit]:
        async with self._lock:
            if self._closed:
                raise NotFound("the process backend is closed")
            if self._root is None or self._tools is None:
                self._fence = await self._choose_fence()
                root, self._lock_fd = await asyncio.to_thread(_make_root, self._parent)
                self._tools = await asyncio.to_thread(Toolkit.build, root / ".tools", self._python_packages)
                self._root = root
            return self._root, self._tools

    async def _choose_fence(self) -> Bubblewrap | None:
        if self._wanted == "none":
            return None
        found = Bubblewrap.find()
        problem = found if isinstance(found, str) else await found.check()
        if isinstance(found, Bubblewrap) and not problem:
            return found
        remedy = (
            "Install bubblewrap (and util-linux, as root) and allow user namespaces, or use another backend."
        )
        if self._wanted == "bubblewrap":
            raise InfraError(f"cannot isolate sandboxes: {problem}. {remedy}")
        log.warning(
            "sandboxes run WITHOUT isolation: %s. Lost: private file system, network and process view, process "
            "limit, one /workspace path (turns that print it cannot be replayed). Commands run as user %s and can "
            "do what it can. %s",
            problem,
            getpass.getuser(),
            remedy,
        )
        return None


def _make_root(parent: Path | None) -> tuple[Path, int]:
    """Make this backend's folder, locked while it lives, and remove those of servers that were killed."""
    folder = Path(tempfile.gettempdir()) if parent is None else parent
    root = Path(tempfile.mkdtemp(prefix=_ROOT_PREFIX, dir=folder))
    lock = os.open(root, os.O_RDONLY | os.O_DIRECTORY)
    fcntl.flock(lock, fcntl.LOCK_EX)
    for other in folder.glob(f"{_ROOT_PREFIX}*"):
        with contextlib.suppress(FileNotFoundError):  # another server may be at it, too
            if other != root and not other.is_symlink():
                _remove_if_abandoned(other)
    return root, lock


def _remove_if_abandoned(folder: Path) -> None:
    status = folder.stat()
    if status.st_uid != os.geteuid() or time.time() - status.st_mtime < _ABANDONED_S:
        return
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        log.info("removing what a killed server left folder=%s", folder)
        _remove_tree(folder)
    except BlockingIOError:
        return  # its server lives
    finally:
        os.close(fd)


def _check(spec: SandboxSpec) -> None:
    lacking = {
        "an image": bool(spec.image),
        "a network": spec.network.enabled,
        "ports": bool(spec.ports),
        "GPUs": bool(spec.resources.gpus),
    }
    if asked := [name for name, value in lacking.items() if value]:
        raise Unimplemented(
            f"the process backend cannot give a sandbox {', '.join(asked)}; use the docker backend"
        )
    workdir = spec.workdir
    if not re.fullmatch(r"/[A-Za-z0-9_-]+", workdir) or workdir in _SYSTEM_FOLDERS:
        raise InvalidArgument(
            f"workdir of a process sandbox must be a new top-level folder such as '/workspace', got {workdir!r}"
        )


def _environment(spec: SandboxSpec, *, home: str, programs: str) -> dict[str, str]:
    return {
        "PATH": f"{programs}:{_SYSTEM_PATH}",
        "HOME": home,
        "USER": "agent",
        "LANG": "C.UTF-8",
        "TERM": "dumb",
        **dict(spec.env),
    }


def _limits(spec: SandboxSpec, *, fenced: bool) -> list[tuple[int, int]]:
    limits = [
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_NOFILE, _OPEN_FILES),
        (resource.RLIMIT_FSIZE, spec.resources.disk_bytes),
        (resource.RLIMIT_AS, spec.resources.memory_bytes),
    ]
    if fenced:  # without a user namespace it would count every process of this user
        limits.append((resource.RLIMIT_NPROC, spec.resources.pids))
    return [(limit, value) for limit, value in limits if value or limit == resource.RLIMIT_CORE]


def _fenced(
    spec: SandboxSpec, folder: Path, parts: tuple[Bubblewrap, Toolkit]
) -> tuple[list[str], dict[str, object]]:
    fence, tools = parts
    identity = box_identity()
    binds = {folder / "work": spec.workdir, folder / "home": _HOME, folder / "tmp": "/tmp"}
    for host in binds:
        host.mkdir(mode=0o755)
        if os.geteuid() == 0:
            os.chown(host, identity, identity)
    argv = fence.fence(tools=tools, binds=binds, workdir=spec.workdir, identity=identity)
    argv += [f"{BOX_PYTHON}/bin/python", "-I", "-S", f"{BOX_TOOLS}/guest.pyc"]
    return argv, {
        "workdir": spec.workdir,
        "public_workdir": spec.workdir,
        "roots": list(binds.values()),
        "env": _environment(spec, home=_HOME, programs=f"{BOX_PYTHON}/bin"),
        "rlimits": _limits(spec, fenced=True),
    }


def _bare(spec: SandboxSpec, folder: Path, tools: Toolkit) -> tuple[list[str], dict[str, object]]:
    work, home, temporary = (folder.resolve() / name for name in ("work", "home", "tmp"))
    for host in (work, home, temporary):
        host.mkdir()
    programs = str(Path(sys.executable).parent)
    return [sys.executable, "-I", "-S", str(tools.guest)], {
        "workdir": str(work),
        "public_workdir": spec.workdir,
        "roots": [str(work), str(home), str(temporary)],
        "env": {"TMPDIR": str(temporary), **_environment(spec, home=str(home), programs=programs)},
        "rlimits": _limits(spec, fenced=False),
    }


def _entry(block: bytes) -> FileEntry:
    size, mode, modified_at, path_length, link_length = guest.ENTRY.unpack_from(block)
    texts = block[guest.ENTRY.size :]
    if len(texts) != path_length + link_length:
        raise InfraError(
            f"the sandbox described a file in {len(texts)} bytes, expected {path_length + link_length}"
        )
    path, link = texts[:path_length], texts[path_length:]
    decode: Callable[[bytes], str] = lambda text: text.decode(errors="surrogateescape")  # noqa: E731
    return FileEntry(decode(path), size, mode, modified_at, decode(link))


def _remove_tree(folder: Path) -> None:
    """Delete what a box left, also where its commands took away their own permissions."""
    try:
        shutil.rmtree(folder)
    except OSError:
        folder.chmod(stat.S_IRWXU)
        for path, names, _ in os.walk(folder):
            for below in (Path(path, name) for name in names):
                if not below.is_symlink():
                    below.chmod(stat.S_IRWXU)  # before os.walk looks into it
        shutil.rmtree(folder)
