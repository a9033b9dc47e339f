"""The foreign tasks on a real server: their images built, their environment served. Used by the suite of foreign tasks."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import pickle
import subprocess
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from docker_engine import skip_without

from rock_env.client.client import Client
from rock_env.client.registry import RegistryClient
from rock_env.env import Verdict
from rock_env.grading.model import Task
from rock_env.local import embedded
from rock_env.server.images.records import ImageRecords
from rock_env.server.images.registry import TAG
from rock_env.tasksets.detect import read_tasks
from rock_env.tasksets.environment import solution_actions
from rock_env.tasksets.images import build_images
from rock_env.tasksets.source import split_tasks

FOREIGN = Path(__file__).parents[1] / "tasks" / "foreign"
SWE_OPTIONS = {
    "image": "python:3.11-slim",
    "test_command": "python -m unittest -v {modules}",
    "parser": "unittest",
    "test_timeout_s": 60,
}
_MODULE = """\
import pickle
from pathlib import Path

from rock_env.tasksets.environment import make_env_spec

TASKS, IMAGES = pickle.loads(Path({data!r}).read_bytes())
ENV = make_env_spec("foreign", "1", TASKS, images=IMAGES)
"""


@pytest.fixture(scope="session")
def bases(engine: None) -> None:
    """Skip, saying what is missing, where the images that others build upon are absent."""
    skip_without("busybox:1.35", "debian:bookworm-slim", "python:3.11-slim")


def make_repository(folder: Path) -> list[str]:
    """Make the repository that the instances are about; return its commits, oldest first."""
    place = FOREIGN / "swe" / "toy_repository.py"
    found = importlib.util.spec_from_file_location("toy_repository", place)
    assert found is not None
    assert found.loader is not None
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    folder.mkdir(parents=True, exist_ok=True)
    commits: list[str] = module.make(folder)
    return commits


def read_foreign(folder: Path) -> list[Task]:
    """Read all twelve; what the instances need lies in `folder`."""
    make_repository(folder / "repos")
    swe = read_tasks(FOREIGN / "swe", repos=folder / "repos", contexts=folder / "contexts", **SWE_OPTIONS)
    return [*read_tasks(FOREIGN / "harbor"), *read_tasks(FOREIGN / "terminal_bench"), *swe]


@dataclass(frozen=True)
class Played:
    """What one episode came to."""

    verdict: Verdict
    observations: tuple[str, ...]
    graded_s: float


class Foreign:
    """A server that offers tasks as the environment `foreign`."""

    def __init__(self, client: Client, tasks: Sequence[Task]) -> None:
        self._client = client
        self.tasks = {task.name: task for task in tasks}
        self._ids = {
            task.name: f"{split}/{index}"
            for split, members in split_tasks(tasks).items()
            for index, task in enumerate(members)
        }
        self._turn = asyncio.Semaphore(3)

    async def play(self, name: str, actions: Sequence[str] = ()) -> Played:
        """Play one episode, submit and grade it."""
        async with self._turn:
            env = await self._client.make("foreign", json.dumps({"command_timeout_s": 30}))
            try:
                first, _, _ = await env.reset(self._ids[name], 0)
                said = [first, *[(await env.step(action)).observation for action in (*actions, "submit")]]
                began = time.perf_counter()
                verdict = await env.evaluate(timeout_s=120)
                return Played(verdict, tuple(said), time.perf_counter() - began)
            finally:
                await env.close()

    async def solve(self, name: str) -> Played:
        """Play the task's own solution."""
        return await self.play(name, solution_actions(self.tasks[name]))


@asynccontextmanager
async def serving(tasks: Sequence[Task], folder: Path) -> AsyncIterator[Foreign]:
    """Build the tasks' images and serve them; what was built is removed in the end."""
    state = f"--state={folder / 'state'}"
    async with embedded([state, "--workers=1"]) as address, RegistryClient(address) as registry:
        images = await build_images(registry, tasks)
    (folder / "tasks.pickle").write_bytes(pickle.dumps((list(tasks), dict(images))))
    module = folder / "foreign_env.py"
    module.write_text(_MODULE.format(data=str(folder / "tasks.pickle")))
    try:
        async with (
            embedded([state, "--workers=1", f"--env={module}:ENV"]) as address,
            Client(address) as client,
        ):
            yield Foreign(client, tasks)
    finally:
        _remove_built(folder / "state" / "images.json")


def _remove_built(records: Path) -> None:
    """Take the registry's tags off what it built here; the engine removes what has none."""
    for record in ImageRecords(records):
        if record.built:
            tag = f"{TAG}:{record.image_id.removeprefix('sha256:')[:32]}"
            subprocess.run(["docker", "image", "rm", tag], capture_output=True, check=False)
