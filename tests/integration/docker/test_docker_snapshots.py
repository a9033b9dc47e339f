"""Layers of containers on a real engine: snapshots upon one another, boxes restored, forked and grafted."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from docker_engine import BUSYBOX, docker, until

from rock_env.backends.docker.backend import DockerBackend
from rock_env.errors import FailedPrecondition, NotFound
from rock_env.spec import SandboxSpec

SPEC = SandboxSpec(image=BUSYBOX)


def sh(script: str) -> list[str]:
    return ["sh", "-c", script]


@pytest.mark.first
async def test_snapshots_build_upon_one_another(backend: DockerBackend) -> None:
    box = await backend.create(SPEC, sandbox_id="trunk")
    await box.exec(
        sh("echo one > a; rm /etc/group; (while :; do echo x >> ticks; sleep 0.01; done) >/dev/null 2>&1 &")
    )
    assert await backend.snapshot("trunk", snapshot_id="first") > 0
    ticks = (await box.stat("ticks")).size

    async def goes_on() -> bool:
        return (await box.stat("ticks")).size > ticks

    await until(goes_on)
    branch = await backend.create(SPEC, sandbox_id="branch", snapshot="first")
    assert (
        await branch.exec(sh("cat a; ls /etc; ps | grep -c 'tick[s]'"))
    ).stdout == b"one\nhostname\nhosts\nmtab\npasswd\nresolv.conf\n0\n"
    await branch.write_file("b", b"two")
    size = await backend.snapshot("branch", snapshot_id="second")
    assert 0 < size < 1000, "a layer holds what is new"
    assert await backend.snapshots() == {"first", "second"}
    with pytest.raises(FailedPrecondition, match="already"):
        await backend.snapshot("branch", snapshot_id="second")
    with pytest.raises(FailedPrecondition, match="snapshot second"):
        await backend.delete_snapshot("first")
    leaves = [await backend.create(SPEC, sandbox_id=f"leaf-{n}", snapshot="second") for n in range(2)]
    for leaf in leaves:
        assert (await leaf.exec(sh("cat a b"))).stdout == b"one\ntwo"
    await branch.close()
    with pytest.raises(FailedPrecondition, match="by snapshot second;"):
        await backend.delete_snapshot("first")
    with pytest.raises(FailedPrecondition, match="container"):
        await backend.delete_snapshot("second")
    for leaf in leaves:
        await leaf.close()
    await backend.delete_snapshot("second")
    await backend.delete_snapshot("second")
    await backend.delete_snapshot("first")
    assert not await backend.snapshots()
    for use in (
        backend.create(SPEC, sandbox_id="late", snapshot="first"),
        backend.restore("trunk", snapshot="first"),
        backend.snapshot("nobody", snapshot_id="x"),
    ):
        with pytest.raises(NotFound):
            await use
    assert (await box.exec(["cat", "a"])).stdout == b"one\n", "a restore to nothing changes nothing"


async def test_a_layer_that_lost_its_tag_is_no_snapshot(backend: DockerBackend) -> None:
    await backend.create(SPEC, sandbox_id="trunk")
    await backend.snapshot("trunk", snapshot_id="lower")
    await backend.restore("trunk", snapshot="lower")
    await backend.snapshot("trunk", snapshot_id="upper")
    listed = await asyncio.to_thread(docker, "images", "--format", "{{.Repository}}:{{.Tag}}", "rock-snap")
    (container,) = (await backend.census()).values()
    server = '{{index .Config.Labels "rock.server"}}'
    own = await asyncio.to_thread(docker, "inspect", "--format", server, container.split()[1])
    assert {f"rock-snap:{own}-lower", f"rock-snap:{own}-upper"} <= set(listed.splitlines())
    foreign = await asyncio.to_thread(docker, "create", f"rock-snap:{own}-upper", "/bin/true")
    assert list(await backend.census()) == ["trunk"], "a container that somebody makes of a layer is no box"
    await asyncio.to_thread(docker, "rm", foreign)
    await backend.destroy("trunk")
    await asyncio.to_thread(docker, "rmi", f"rock-snap:{own}-lower")
    assert await backend.snapshots() == {"upper"}
    await backend.close()


@pytest.mark.first
async def test_restore_puts_everything_back(backend: DockerBackend) -> None:
    box = await backend.create(SPEC, sandbox_id="again", lease_s=600)
    await box.write_file("kept", b"1")
    await backend.snapshot("again", snapshot_id="before")
    await box.exec(sh("rm kept; echo 2 > new; (sleep 600) >/dev/null 2>&1 &"))
    same = await backend.restore("again", snapshot="before")
    assert (same.id, await same.read_file("kept")) == ("again", b"1")
    assert (await same.exec(sh("ls; ps | grep -c 'slee[p]'"))).stdout == b"kept\n0\n"
    with pytest.raises(NotFound, match="closed"):
        await box.exec(["true"])
    assert list(await backend.census()) == ["again"]


BEFORE = """
mkdir -p a/b opaque gone; echo 1 > a/b/one; echo 2 > a/two; echo 3 > opaque/old; echo 4 > gone/x; echo f > becomes-folder
mkdir becomes-file; echo x > becomes-file/x; ln -s /etc becomes-real
"""
AFTER = """
echo changed > a/b/one; rm a/two; rm -r opaque; mkdir opaque; echo new > opaque/new; rm -r gone; rm becomes-folder
mkdir becomes-folder; echo in > becomes-folder/in; rm -r becomes-file; echo now > becomes-file
rm becomes-real; mkdir becomes-real; echo mine > becomes-real/passwd; ln -s nowhere/at/all dangling; mkfifo pipe
echo twin > twin-1; ln twin-1 twin-2; chmod 4750 becomes-file; chmod 1777 opaque; touch -d @1000000000 a/b/one
echo x >> /etc/passwd
"""
LISTING = """
cd /; find bin/busybox etc tmp workspace root home -type d -print0 | sort -z | xargs -0 stat -c '%n %f %u %g'
find bin/busybox etc/passwd tmp workspace root home ! -type d -print0 | sort -z | xargs -0 stat -c '%n %f %u %g %h %Y %s'
find etc workspace -type f -print0 | sort -z | xargs -0 md5sum; find workspace -type l | sort | xargs -n1 readlink
"""


@pytest.mark.usefixtures("reachable_layers")
async def test_a_grafted_box_is_the_same_as_one_made_upon_the_snapshot(backend: DockerBackend) -> None:
    trunk = await backend.create(SPEC, sandbox_id="trunk")
    assert (await trunk.exec(sh(BEFORE))).ok
    await backend.snapshot("trunk", snapshot_id="lower")
    changed = await (await backend.restore("trunk", snapshot="lower")).exec(sh(AFTER))
    assert changed.ok, changed.stderr
    await backend.snapshot("trunk", snapshot_id="upper")
    made = await backend.create(SPEC, sandbox_id="made", snapshot="upper")
    stock = await backend.create(SPEC, sandbox_id="stock")
    assert await backend.can_graft(SPEC, snapshot="upper")
    assert await backend.graft("stock", snapshot="upper")
    expected, got = [await box.exec(sh(LISTING)) for box in (made, stock)]
    assert expected.ok, expected.stderr
    assert got.stdout.decode().splitlines() == expected.stdout.decode().splitlines()
    host = await asyncio.to_thread(Path("/etc/passwd").read_text)
    assert "x" not in host.splitlines(), "the link in the image led nowhere"
    await made.close()
    await trunk.close()
    await backend.destroy("trunk")
    await backend.delete_snapshot("upper")
    assert (await stock.exec(["cat", "becomes-real/passwd"])).stdout == b"mine\n"
    with pytest.raises(NotFound):
        await backend.graft("stock", snapshot="upper")
