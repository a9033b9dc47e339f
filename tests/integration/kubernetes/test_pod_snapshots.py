"""Snapshots of pods: another pod of the image gets what the box changed, whoever its user is and wherever its files are."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest
from docker_engine import BUSYBOX
from kubernetes_cluster import guest_image, namespace, tools_image  # noqa: F401  fixtures

from rock_env.backends.kubernetes.backend import KubernetesBackend
from rock_env.backends.kubernetes.options import KubernetesOptions
from rock_env.errors import FailedPrecondition, InvalidArgument, NotFound
from rock_env.guest.steering import Steering
from rock_env.sandbox import Sandbox
from rock_env.spec import Resources, SandboxSpec

SPEC = SandboxSpec(resources=Resources(cpus=1, memory_bytes=128 << 20, disk_bytes=128 << 20))

CHANGE = r"""
set -e
mkdir -p deep/er empty && echo one > deep/er/file && echo two > 'a name
of two lines' && ln -s /bin deep/link && ln deep/er/file hard && chmod 751 deep && chmod 000 deep/er/file
touch -d '2001-02-03T04:05:06' deep/er
mkfifo pipe
"""
CHANGE_IMAGE = r"""
set -e
echo more >> /etc/passwd
rm /etc/group
mkdir /etc/group && echo in > /etc/group/in
rm -r /home/agent && echo file > /home/agent
mkdir -p /srv/data && echo there > /srv/data/there
"""
LOOK = r"""
for each in . /etc /home /srv; do
  find "$each" ! -name pipe ! -name 'host*' ! -name resolv.conf ! -type d -exec stat -c '%n %F %a %u %s %h' {} +
  find "$each" -type d -exec stat -c '%n %F %a %u' {} +
done 2>/dev/null | sort
cat deep/er/file 'a name
of two lines' /etc/passwd /etc/group/in /home/agent /srv/data/there 2>&1
stat -c '%y %n' deep/er 2>&1
"""


@pytest.fixture
def options(guest_image: str, tools_image: str, namespace: str) -> KubernetesOptions:  # noqa: F811
    return KubernetesOptions(
        namespace=namespace, guest=guest_image, image=tools_image, profile="image", reserved=0.1
    )


@pytest.fixture
async def backend(options: KubernetesOptions, tmp_path: Path) -> AsyncIterator[KubernetesBackend]:
    made = KubernetesBackend(options, root=tmp_path)
    yield made
    await made.close()


async def run(box: Sandbox, script: str) -> str:
    result = await box.exec(["sh", "-c", script])
    return (result.stdout + result.stderr).decode()


async def test_a_pod_from_a_snapshot_has_every_change_of_the_box(backend: KubernetesBackend) -> None:
    box = await backend.create(SPEC, sandbox_id="source")
    plain = await run(box, LOOK)
    assert await run(box, CHANGE + CHANGE_IMAGE) == ""
    changed = await run(box, LOOK)
    assert changed != plain
    size = await backend.snapshot("source", snapshot_id="one")
    assert 1_000 < size < 100_000, "the changes alone, not the image"
    assert await run(box, LOOK) == changed, "taking it changes nothing"
    copy = await backend.create(SPEC, sandbox_id="copy", snapshot="one")
    assert await run(copy, LOOK) == changed
    assert "there" in await run(copy, "chmod 600 deep/er/file; cat hard /srv/data/there")
    assert "deep" not in await run(await backend.create(SPEC, sandbox_id="fresh"), "ls")
    # A snapshot of the copy holds the changes of both, and needs none before it.
    await run(copy, "rm -r deep; echo later > later")
    await backend.snapshot("copy", snapshot_id="two")
    await backend.delete_snapshot("one")
    third = await backend.create(SPEC, sandbox_id="third", snapshot="two")
    assert (
        await run(third, "cat later /home/agent; ls")
        == "later\nfile\na name\nof two lines\nempty\nhard\nlater\n"
    )
    assert await backend.snapshots() == {"two"}


async def test_a_box_goes_back_to_a_snapshot_and_its_processes_end(backend: KubernetesBackend) -> None:
    box = await backend.create(SPEC, sandbox_id="box")
    await box.write_file("kept", b"1")
    await backend.snapshot("box", snapshot_id="then")
    await run(box, "rm kept; echo 2 > other; sleep 600 > /dev/null 2>&1 &")
    again = await backend.restore("box", snapshot="then")
    assert again.id == "box"
    assert await run(again, "cat kept; ls") == "1kept\n"
    assert await again.processes() == []
    assert "sleep" not in await run(again, "cat /proc/[0-9]*/cmdline | tr '\\0' ' '; :")
    assert list(await backend.census()) == ["box"]
    with pytest.raises(NotFound, match="the server that made it"):
        await backend.restore("box", snapshot="unknown")
    assert await run(again, "cat kept") == "1", "nothing was changed"


async def test_commands_stand_still_while_a_snapshot_is_taken_and_go_on(backend: KubernetesBackend) -> None:
    box = await backend.create(SPEC, sandbox_id="busy")
    script = "i=0; while [ ! -e stop ]; do i=$((i+1)); echo $i > new && mv new count; done; echo $i"
    counting = asyncio.create_task(box.exec(["sh", "-c", script], timeout_s=60))
    await asyncio.sleep(0.5)
    for number in range(3):
        await backend.snapshot("busy", snapshot_id=f"s{number}")
        await asyncio.sleep(0.5)
    await box.write_file("stop", b"")
    last = int((await counting).stdout)
    copies = [await backend.create(SPEC, sandbox_id=f"c{n}", snapshot=f"s{n}") for n in range(3)]
    counts = [int(await run(copy, "cat count")) for copy in copies]
    assert counts == sorted(set(counts))
    assert 0 < counts[0] < counts[-1] < last


@pytest.mark.parametrize("read_only_root", [False, True])
async def test_any_user_on_any_root_has_snapshots(
    options: KubernetesOptions, tmp_path: Path, read_only_root: bool
) -> None:
    careful = options.model_copy(
        update={"profile": "restricted", "image": BUSYBOX, "user": 12345, "read_only_root": read_only_root}
    )
    tight = KubernetesBackend(careful, root=tmp_path)
    box = await tight.create(SPEC, sandbox_id="box")
    assert (
        await run(box, "mkdir -p d/e; echo 1 > d/e/f; chmod 500 d/e; echo 2 > /tmp/g; chmod 000 d/e/f") == ""
    )
    await tight.snapshot("box", snapshot_id="one")
    copy = await tight.create(SPEC, sandbox_id="copy", snapshot="one")
    assert await run(copy, "stat -c '%a %u' d/e d/e/f; cat /tmp/g; chmod 600 d/e/f; cat d/e/f") == (
        "500 12345\n0 12345\n2\n1\n"
    )
    await tight.close()


async def test_a_snapshot_is_whole_or_not_at_all_and_bounded(
    backend: KubernetesBackend, options: KubernetesOptions, tmp_path: Path
) -> None:
    small = KubernetesBackend(options.model_copy(update={"snapshot_bytes": 1 << 20}), root=tmp_path)
    box = await small.create(SPEC, sandbox_id="big")
    await run(box, "head -c 2M /dev/zero > zeros")
    with pytest.raises(InvalidArgument, match="2097152 bytes, and a snapshot here at most 1048576"):
        await small.snapshot("big", snapshot_id="no")
    assert (await run(box, "rm zeros; echo on")) == "on\n", "the box goes on"
    await small.snapshot("big", snapshot_id="yes")
    with pytest.raises(FailedPrecondition, match="already"):
        await small.snapshot("big", snapshot_id="yes")
    assert await small.snapshots() == {"yes"}
    with pytest.raises(NotFound, match="'no'"):
        await small.create(SPEC, sandbox_id="none", snapshot="no")
    assert list(await small.census()) == ["big"], "no pod was made"
    (tmp_path / "snapshots" / "yes.tar").write_bytes(b"damaged" * 1000)
    with pytest.raises(InvalidArgument):
        await small.create(SPEC, sandbox_id="none", snapshot="yes")
    assert list(await small.census()) == ["big"], "nor is one left"
    await small.close()


async def test_a_task_without_an_image_gets_the_operators_and_no_modules_ahead(
    backend: KubernetesBackend,
) -> None:
    box = await backend.create(replace(SPEC, preload=("pytest",)), sandbox_id="box")
    assert (await box.exec(["true"])).ok


async def test_a_clean_pod_takes_the_work_over_and_not_what_steers_a_grade(
    backend: KubernetesBackend,
) -> None:
    box = await backend.create(SPEC, sandbox_id="agent")
    hacks = "echo no > conftest.py; echo no > json.py; cat /bin/true > /bin/pytest; echo no > /bin/cat; mkdir __pycache__"
    assert await run(box, f"echo work > work.py; mkdir -p /srv/deep; echo deep > /srv/deep/f; {hacks}") == ""
    await backend.snapshot("agent", snapshot_id="done")
    clean = await backend.create(SPEC, sandbox_id="clean")
    left_out = await backend.take_over("clean", snapshot="done", steering=Steering())
    assert left_out == [
        "bin/cat",
        "bin/pytest",
        *(f"workspace/{each}" for each in ("__pycache__", "conftest.py", "json.py")),
    ]
    assert await run(clean, "ls; cat work.py /srv/deep/f") == "work.py\nwork\ndeep\n"
    with pytest.raises(NotFound):
        await backend.take_over("clean", snapshot="unknown", steering=Steering())


async def test_servers_that_mount_one_folder_start_pods_from_each_others_snapshots(
    options: KubernetesOptions, tmp_path: Path
) -> None:
    async def secret() -> bytes:
        return b"m" * 32

    (tmp_path / "all").mkdir()
    mounted = options.model_copy(update={"snapshots": tmp_path / "all"})
    one, two = (KubernetesBackend(mounted, root=tmp_path / name, secret=secret) for name in "ab")
    try:
        box = await one.create(SPEC, sandbox_id="mounted")
        await run(box, "echo kept > /tmp/f")
        await one.snapshot("mounted", snapshot_id="sn-1")
        copy = await two.create(SPEC, sandbox_id="copy", snapshot="sn-1")
        assert await run(copy, "cat /tmp/f") == "kept\n"
        await two.delete_snapshot("sn-1")
        assert await one.snapshots() == set()
    finally:
        for each in (one, two):
            await each.close()
