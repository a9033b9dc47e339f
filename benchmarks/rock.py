"""What sandboxes cost through a real server, against the cheapest thing the machine itself offers.

`python -m benchmarks.rock [--quick]`. One server with its records on disk, one client, both on this machine; each ratio
compares medians of calls that alternate in one run. The last line is one JSON object; null means that this machine lacks
what the figure needs, and standard error says what.

- `create_over_bwrap`: Create of a process sandbox over a bare `bwrap --unshare-all … true` (goal: at most 3);
- `claim_over_docker_run`: Create of a Docker sandbox from a warm pool over `docker run --rm … true` (at most 0.1);
- `exec_over_docker_exec`: Exec of `true` in a live Docker sandbox over `docker exec … true` in it (at most 0.1);
- `fork16_over_docker_run`: Fork(16) of a process sandbox holding a small repository over one `docker run` (at most 1);
- `transfer_over_copy`: seconds of a local copy of a file over those of its Upload and of its Download, the slower of the
  two (at least 0.5);
- `concurrent_process`: process sandboxes that ran a command while all were alive (goal: 200), and `concurrent_inprocess`,
  in-process environments that took a step while all were alive (goal: 1,000);
- `mb_per_idle`: megabytes (proportional set size) of all processes that an idle process sandbox adds.

Further keys: the same create, claim, exec and fork in milliseconds, fork and exec on the other backend.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import itertools
import os
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

import grpc
import psutil

from benchmarks.scaffold import alternating, finish, parser_of, say, seconds
from rock_env.client import Client
from rock_env.local import embedded
from rock_env.proto.v1 import admin_pb2, admin_pb2_grpc, sandbox_pb2, sandbox_pb2_grpc
from rock_env.wire.bulk import CHUNK, TAR, add_bulk_calls, keep_large_blocks
from rock_env.wire.channel import CLIENT_OPTIONS, target

IMAGE = "rock-test:busybox"
BWRAP = ["bwrap", "--unshare-all", "--ro-bind", "/", "/", "--proc", "/proc", "--dev", "/dev", "/bin/true"]
DOCKER_RUN = ["docker", "run", "--rm", "--network=none", IMAGE, "/bin/true"]
BLOCK = 1 << 20
PAUSE_S = 0.2


@dataclass(frozen=True)
class Size:
    """How much is measured."""

    creates: int
    docker: int
    execs: int
    forks: int
    file_mb: int
    process_boxes: int
    envs: int


FULL = Size(creates=60, docker=12, execs=40, forks=8, file_mb=1024, process_boxes=200, envs=1000)
QUICK = Size(creates=20, docker=4, execs=15, forks=3, file_mb=128, process_boxes=50, envs=1000)


async def run(argv: list[str]) -> None:
    """Run a program to its successful end."""
    process = await asyncio.create_subprocess_exec(*argv, stdout=subprocess.DEVNULL)
    assert await process.wait() == 0, argv


class Service:
    """The calls of one server, as short as a benchmark likes them."""

    def __init__(self, channel: grpc.aio.Channel, address: str) -> None:
        self.address = address
        self.boxes: Any = sandbox_pb2_grpc.SandboxServiceStub(channel)
        add_bulk_calls(self.boxes, channel)
        self.admin: Any = admin_pb2_grpc.AdminServiceStub(channel)
        self._keys = itertools.count()

    async def create(self, image: str = "", **wanted: Any) -> str:
        spec = sandbox_pb2.SandboxSpec(image=image)
        request = sandbox_pb2.CreateSandboxRequest(
            spec=spec, idempotency_key=f"k{next(self._keys)}", **wanted
        )
        return str((await self.boxes.Create(request)).id)

    async def delete(self, *ids: str) -> None:
        await asyncio.gather(
            *(self.boxes.Delete(sandbox_pb2.DeleteSandboxRequest(id=sandbox)) for sandbox in ids)
        )

    async def exec(self, sandbox: str, *argv: str) -> bytes:
        call = self.boxes.Exec()
        start = sandbox_pb2.ExecStart(sandbox_id=sandbox, argv=argv)
        await call.write(sandbox_pb2.ExecRequest(start=start))
        await call.done_writing()
        output = bytearray()
        async for event in call:
            output += event.stdout.data
            if event.HasField("exit"):
                assert event.exit.exit_code == 0, event
        return bytes(output)

    async def fork(self, sandbox: str, count: int) -> list[str]:
        request = sandbox_pb2.ForkSandboxRequest(
            id=sandbox, count=count, idempotency_key=f"k{next(self._keys)}"
        )
        return [info.id for info in (await self.boxes.Fork(request)).sandboxes]

    async def upload(self, sandbox: str, tar: Path) -> None:
        def blocks() -> Iterator[sandbox_pb2.UploadRequest | bytes]:
            with tar.open("rb") as file:
                yield sandbox_pb2.UploadRequest(sandbox_id=sandbox, path=".")
                while block := file.read(BLOCK):
                    yield TAR.pack(block)

        await self.boxes.Upload(blocks())

    async def download(self, sandbox: str, path: str, to: Path) -> None:
        with to.open("wb") as file:
            request = sandbox_pb2.DownloadRequest(sandbox_id=sandbox, path=path)
            async for chunk in self.boxes.Download(request):
                file.write(CHUNK.data(chunk))


def engine() -> str:
    """Return why nothing can be measured with Docker here, or an empty string."""
    if shutil.which("docker") is None:
        return "no `docker` on PATH (Debian: apt-get install docker.io, then scripts/test_images.sh)"
    found = subprocess.run(["docker", "image", "inspect", IMAGE], capture_output=True, check=False)
    return "" if found.returncode == 0 else f"no Docker engine with {IMAGE}: {found.stderr.decode().strip()}"


def own_container() -> str:
    """Return the container of the one Docker sandbox that is left."""
    words = ["docker", "ps", "-q", "--filter", "label=rock.sandbox", "--filter", f"ancestor={IMAGE}"]
    return subprocess.run(words, capture_output=True, check=True, text=True).stdout.split()[0]


async def create(service: Service, size: Size) -> dict[str, float]:
    made: list[str] = []

    async def ours() -> None:
        made.append(await service.create())

    await ours()
    mine, bare = await alternating(
        ours, lambda: run(BWRAP), size.creates, after=lambda: service.delete(made.pop())
    )
    await service.delete(*made)
    return {"create_over_bwrap": mine / bare, "create_ms": mine * 1e3, "bwrap_ms": bare * 1e3}


async def docker(service: Service, size: Size) -> dict[str, float]:
    pool = admin_pb2.SetPoolRequest(spec=sandbox_pb2.SandboxSpec(image=IMAGE), size=4)
    await service.admin.SetPool(pool)

    async def stocked() -> None:
        """Wait until the pool is full: refilling must not compete with what is timed."""
        full = False
        while not full:
            await asyncio.sleep(PAUSE_S)
            pools = (await service.admin.ListPools(admin_pb2.ListPoolsRequest())).pools
            full = all(one.ready >= one.target for one in pools)

    made: list[str] = []

    async def ours() -> None:
        made.append(await service.create(IMAGE))

    claims, runs = [], []
    for _ in range(size.docker):
        await stocked()
        claims.append(await seconds(ours))
        await stocked()
        runs.append(await seconds(lambda: run(DOCKER_RUN)))
    await service.admin.SetPool(admin_pb2.SetPoolRequest(spec=pool.spec, size=0))
    await service.delete(*made[1:])
    sandbox = made[0]
    container = await asyncio.to_thread(own_container)
    mine, theirs = await alternating(
        lambda: service.exec(sandbox, "/bin/true"),
        lambda: run(["docker", "exec", container, "/bin/true"]),
        size.execs,
    )
    forks = []
    for _ in range(2):
        start = perf_counter()
        forked = await service.fork(sandbox, 16)
        forks.append(perf_counter() - start)
        await service.delete(*forked)
    await service.delete(sandbox)
    return {
        "claim_over_docker_run": median(claims) / median(runs),
        "claim_ms": median(claims) * 1e3,
        "docker_run_ms": median(runs) * 1e3,
        "exec_over_docker_exec": mine / theirs,
        "exec_ms": mine * 1e3,
        "docker_exec_ms": theirs * 1e3,
        "docker_fork16_over_docker_run": median(forks) / median(runs),
    }


async def fork(service: Service, size: Size, folder: Path) -> dict[str, float]:
    """Fork a box that holds a repository of about a thousand files."""
    tar = folder / "repository.tar"
    with tarfile.open(tar, "w") as archive:
        for number in range(1000):
            member = tarfile.TarInfo(f"src/package{number % 20}/module{number}.py")
            member.size = 4096
            archive.addfile(member, io.BytesIO(bytes(4096)))
    sandbox = await service.create()
    await service.upload(sandbox, tar)
    forks: list[list[str]] = []

    async def ours() -> None:
        forks.append(await service.fork(sandbox, 16))

    async def floor() -> None:
        if not engine():
            await run(DOCKER_RUN)

    mine, theirs = await alternating(ours, floor, size.forks, after=lambda: service.delete(*forks.pop()))
    await service.delete(sandbox)
    found = {"fork16_ms": mine * 1e3}
    return found if engine() else {"fork16_over_docker_run": mine / theirs, **found}


async def transfer(service: Service, size: Size, folder: Path) -> dict[str, float]:
    big, copy, back = folder / "big", folder / "copy", folder / "back.tar"
    with big.open("wb") as file:
        for _ in range(size.file_mb):
            file.write(os.urandom(BLOCK))
    tar = folder / "big.tar"
    with tarfile.open(tar, "w") as archive:
        archive.add(big, "big")
    keep_large_blocks()  # as the SDK does before it transfers
    spec = sandbox_pb2.SandboxSpec()
    spec.resources.disk_bytes = spec.resources.memory_bytes = (size.file_mb + 512) * BLOCK
    ups, downs, copies = [], [], []
    for _ in range(3):
        request = sandbox_pb2.CreateSandboxRequest(spec=spec)
        sandbox = (await service.boxes.Create(request)).id
        ups.append(await seconds(partial(service.upload, sandbox, tar)))
        copies.append(await seconds(lambda: run(["cp", str(big), str(copy)])))
        downs.append(await seconds(partial(service.download, sandbox, "big", back)))
        copies.append(await seconds(lambda: run(["cp", str(big), str(copy)])))
        await service.delete(sandbox)
    return {
        "transfer_over_copy": median(copies) / max(median(ups), median(downs)),
        "upload_mb_per_s": size.file_mb / median(ups),
        "download_mb_per_s": size.file_mb / median(downs),
        "copy_mb_per_s": size.file_mb / median(copies),
    }


def pss() -> float:
    """Return the proportional set size, in bytes, of all processes that this user may see."""
    total = 0.0
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.NoSuchProcess, psutil.AccessDenied):
            total += process.memory_full_info().pss
    return total


async def crowd(service: Service, size: Size) -> dict[str, float]:
    ids = await asyncio.gather(*(service.create() for _ in range(8)))
    before = await asyncio.to_thread(pss)
    start = perf_counter()
    ids += await asyncio.gather(*(service.create() for _ in range(size.process_boxes - 8)))
    took = perf_counter() - start
    answers = await asyncio.gather(*(service.exec(sandbox, "/bin/echo", sandbox) for sandbox in ids))
    alive = sum(answer == f"{sandbox}\n".encode() for answer, sandbox in zip(answers, ids, strict=True))
    per_box = (await asyncio.to_thread(pss) - before) / (size.process_boxes - 8)
    await service.delete(*ids)
    async with Client(service.address) as client:
        envs = await asyncio.gather(*(client.make("frozen_lake") for _ in range(size.envs)))
        await asyncio.gather(*(env.reset("train/0", seed=number) for number, env in enumerate(envs)))
        stepped = await client.step_many([(env, "left") for env in envs])
        inprocess = sum(not isinstance(one, Exception) for one in stepped)
        await asyncio.gather(*(env.close() for env in envs))
    return {
        "concurrent_process": alive,
        "concurrent_process_create_s": took,
        "concurrent_inprocess": inprocess,
        "mb_per_idle": per_box / 1e6,
    }


async def measure(size: Size) -> dict[str, float | None]:
    found: dict[str, float | None] = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        async with (
            embedded([f"--state={folder}/state"]) as address,
            grpc.aio.insecure_channel(target(address), options=CLIENT_OPTIONS) as channel,
        ):
            service = Service(channel, address)
            if shutil.which("bwrap") is None:
                say("create_over_bwrap: no `bwrap` on PATH (Debian: apt-get install bubblewrap)")
                found["create_over_bwrap"] = None
            else:
                found |= await create(service, size)
            if why := engine():
                say(f"Docker's figures: {why}")
                for key in ("claim_over_docker_run", "exec_over_docker_exec", "fork16_over_docker_run"):
                    found[key] = None
            else:
                found |= await docker(service, size)
            for part in (fork(service, size, folder), crowd(service, size)):
                found |= await part
            found |= await transfer(service, size, folder)
    return {key: value if value is None else round(value, 3) for key, value in found.items()}


def main() -> None:
    parser = parser_of(__doc__, quick="fewer rounds, a smaller file, fewer boxes")
    finish(asyncio.run(measure(QUICK if parser.parse_args().quick else FULL)))


if __name__ == "__main__":
    main()
