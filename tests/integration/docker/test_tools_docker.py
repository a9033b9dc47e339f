"""The tools in containers: an image that has `/bin/sh` alone and one with bash, and what a copy of a box begins with."""

from __future__ import annotations

import stat

import pytest
from docker_engine import BUSYBOX, TOOLS

from rock_env.backends.docker.backend import DockerBackend
from rock_env.errors import ResourceExhausted
from rock_env.sandbox import Sandbox
from rock_env.spec import Resources, SandboxSpec
from rock_env.tools import Toolbox

PROJECT = "/workspace/project"
TESTS = "sh tests.sh"


async def start(backend: DockerBackend, image: str, **more: Resources) -> Sandbox:
    box = await backend.create(SandboxSpec(image=image, **more), sandbox_id=f"tools-{image.split(':')[1]}")
    await box.write_file(f"{PROJECT}/limit", b"5\n", mode=0o640)
    await box.write_file(f"{PROJECT}/tests.sh", b'read n <limit; echo "limit $n $1"; [ "$n" = 7 ]\n')
    return box


async def said(tools: Toolbox, box: Sandbox, action: str) -> str:
    reply = await tools.act(box, action)
    assert not reply.failed, reply
    assert not reply.illegal, reply
    return reply.text


async def sleep_without_end(box: Sandbox) -> None:
    while True:
        await box.start_process(["sleep", "600"])


@pytest.mark.parametrize("image", [BUSYBOX, TOOLS])
async def test_a_task_is_played_and_a_copy_of_the_box_goes_on_with_it(
    backend: DockerBackend, image: str
) -> None:
    tools, box = Toolbox(PROJECT, TESTS), await start(backend, image)
    assert await said(tools, box, "pwd; ls") == f"[exit code 0]\n{PROJECT}\nlimit\ntests.sh"
    has_bash = image == TOOLS
    shell = "bash" if has_bash else "sh"
    assert (
        await said(tools, box, '[ -n "$BASH_VERSION" ] && echo bash || echo sh') == f"[exit code 0]\n{shell}"
    )
    assert await said(tools, box, "run_tests 'a  b'") == "[exit code 1]\nlimit 5 a  b"
    assert await said(tools, box, "view .") == ". (folder, 2 entries)\nlimit\ntests.sh"
    assert await said(tools, box, "edit limit\n<<<<<<<\n5\n=======\n7\n>>>>>>>") == "Edited limit: lines 1-1."
    assert stat.S_IMODE((await box.stat(f"{PROJECT}/limit")).mode) == 0o640
    assert await said(tools, box, "run_tests") == "[exit code 0]\nlimit 7 "
    await said(tools, box, "edit notes/a\n<<<<<<<\n=======\nx\n>>>>>>>")
    await said(tools, box, 'mkdir "a b"; cd "a b"; export A="it\'s"; b=2; set -u; umask 077; f() { echo f; }')
    await backend.snapshot(box.id, snapshot_id=f"{box.id}-snap")
    try:
        copy = await backend.create(SandboxSpec(image=image), sandbox_id="copy", snapshot=f"{box.id}-snap")
        later = Toolbox(PROJECT, TESTS)
        later.restore(tools.snapshot())
        state = await said(later, copy, "pwd; sh -c 'echo \"$A\"'; echo $b; umask; echo ${none-unset}")
        assert state == f"[exit code 0]\n{PROJECT}/a b\nit's\n2\n0077\nunset"
        function = (await said(later, copy, "f")).splitlines()[-1]
        assert (function == "f") == has_bash, "POSIX sh cannot tell its functions"
        assert await said(later, copy, "undo") == "Undone: notes/a is gone, as before that edit."
        assert await said(later, copy, "undo") == "Undone: limit is as before that edit."
        assert await said(later, copy, "run_tests") == "[exit code 1]\nlimit 5 "
        assert await said(tools, box, "run_tests") == "[exit code 0]\nlimit 7 ", "the first one is as it was"
        await backend.destroy("copy")
    finally:
        await backend.delete_snapshot(f"{box.id}-snap")


async def test_a_box_full_of_processes_is_the_agents_matter(backend: DockerBackend) -> None:
    box = await start(backend, BUSYBOX, resources=Resources(pids=24))
    tools = Toolbox(PROJECT, TESTS)
    await said(tools, box, "i=0; while [ $i -lt 60 ]; do sleep 600 & i=$((i+1)); done")
    assert "can't fork" in (await tools.act(box, "run_tests")).text
    with pytest.raises(ResourceExhausted):
        await sleep_without_end(box)
    for action in ("ls", "run_tests"):
        reply = await tools.act(box, action)
        assert dict(reply.info) == {"tool_failed": True}
        assert "no more processes" in reply.text
    assert await said(tools, box, "view limit") == "limit (lines 1-1 of 1)\n5"
    await box.kill_all()
    assert await said(tools, box, "echo $((1 + 1))") == "[exit code 0]\n2"
