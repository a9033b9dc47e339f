"""Builds of tasks and grades of containers on a real engine: what is built once, what fails alone, what runs on."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from docker_engine import engine  # noqa: F401  fixture
from foreign_tasks import bases, serving  # noqa: F401  fixture

from rock_env.client.registry import RegistryClient
from rock_env.errors import InfraError, InvalidArgument, Unavailable
from rock_env.grading.model import Build, Task
from rock_env.local import embedded
from rock_env.tasksets.detect import read_tasks
from rock_env.tasksets.images import build_images

SERVE = """\
bash cd /tmp && echo up >page && (python3 -m http.server 8099 >/dev/null 2>&1 &)
until python3 -c 'import socket; socket.create_connection(("127.0.0.1", 8099))' 2>/dev/null; do sleep 0.1; done"""
ASKED = """\
#!/bin/bash
echo "=== short test summary info ==="
if python3 -c 'import urllib.request as r; assert r.urlopen("http://127.0.0.1:8099/page").read() == b"up\\n"'; then
    echo "PASSED test_page"
else
    echo "FAILED test_page"
fi
"""


def service(folder: Path, **options: str) -> Task:
    """Write a task whose result is a running server, and read it."""
    path = folder / "page-server"
    path.mkdir(exist_ok=True)
    (path / "task.yaml").write_text("instruction: Serve the file page, which says up, on port 8099.\n")
    (path / "Dockerfile").write_text("FROM python:3.11-slim\nWORKDIR /root\n")
    (path / "run-tests.sh").write_text(ASKED)
    (task,) = read_tasks(path, **options)
    return task


def silent(folder: Path) -> Task:
    """Write a task whose tests leave no reward, whatever the agent does, and read it."""
    path = folder / "silent"
    for name, text in {
        "task.toml": "",
        "instruction.md": "Whatever.",
        "environment/Dockerfile": "FROM busybox:1.35\nWORKDIR /root\n",
        "tests/test.sh": "#!/bin/sh\necho all is well\n",
    }.items():
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).write_text(text)
    (task,) = read_tasks(path)
    return task


async def test_a_service_counts_only_where_the_task_says_so(bases: None, tmp_path: Path) -> None:  # noqa: F811
    running = replace(service(tmp_path, grade_in="same"), name="same")
    async with serving([running, service(tmp_path), silent(tmp_path)], tmp_path) as played:
        same = await played.play("same", [SERVE])
        assert (same.verdict.reward, same.observations[1]) == (1.0, "[exit code 0]"), same
        copied = await played.play("page-server", [SERVE])
        assert copied.verdict.reward == 0.0, "no process of the agent's is there in a copy of its files"
        with pytest.raises(
            InfraError, match=r"the verifier wrote neither reward.json nor reward.txt.*all is well"
        ):
            await played.play("silent")


async def test_a_build_is_done_once_and_one_that_fails_costs_no_other(bases: None, tmp_path: Path) -> None:  # noqa: F811
    task = silent(tmp_path)
    bad = tmp_path / "bad"
    bad.mkdir()
    (bad / "Dockerfile").write_text("FROM busybox:1.35\nRUN echo no such luck && exit 4\n")
    tasks = [
        task,
        replace(task, name="again"),
        replace(task, name="named", build=Build(image="busybox:1.35")),
        replace(task, name="bad", build=Build(context=bad)),
        replace(task, name="worse", build=Build(context=bad)),
    ]
    heard: Counter[Build] = Counter()

    def on_log(build: Build, words: bytes) -> None:
        heard[build] += words.count(b"Step 1/")

    async with RegistryClient(f"unix://{tmp_path}/nobody") as registry:
        with pytest.raises(Unavailable):
            await build_images(registry, tasks[:1])
    state = f"--state={tmp_path / 'state'}"
    async with embedded([state, "--workers=1"]) as address, RegistryClient(address) as registry:
        with pytest.raises(
            InvalidArgument, match=r"(?s)the image of bad, worse does not build: .*no such luck"
        ) as no:
            await build_images(registry, tasks, on_log)
        assert "silent" not in str(no.value)
        images = await build_images(registry, tasks[:3], on_log)
        assert images == {task.build: images[task.build], tasks[2].build: "busybox:1.35"}
        assert not (await registry.register(task.build.context or bad, "other")).built_now
        assert heard == {task.build: 1, Build(context=bad): 1}
        for image in await registry.list():
            await registry.delete(image.name)
        slow = replace(task, build=replace(task.build, timeout_s=0.001))
        with pytest.raises(
            InvalidArgument, match=r"silent does not build: the build took longer than .* 0.001 s"
        ):
            await build_images(registry, [slow])
