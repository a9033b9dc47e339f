"""Frozen file systems of process boxes: exact, stackable, cheap to start from, and never removed under somebody."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Literal

import pytest
from fences import why_not_isolated

from rock_env.backends.process import layers, trees
from rock_env.backends.process.backend import ProcessBackend
from rock_env.errors import FailedPrecondition, InvalidArgument, NotFound
from rock_env.guest_host.box import GuestBox
from rock_env.spec import Resources, SandboxSpec

SPEC = SandboxSpec(resources=Resources(disk_bytes=64 << 20))


@pytest.fixture(params=["namespaces", "none"])
def isolation(request: pytest.FixtureRequest) -> Literal["namespaces", "none"]:
    if request.param == "namespaces" and why_not_isolated():
        pytest.skip(f"no isolation here: {why_not_isolated()}")
    made: Literal["namespaces", "none"] = request.param
    return made


@pytest.fixture
async def backend(tmp_path: Path, isolation: Literal["namespaces", "none"]) -> AsyncIterator[ProcessBackend]:
    made = ProcessBackend(root=tmp_path / "state", isolation=isolation)
    yield made
    await made.close()


@pytest.fixture
async def box(backend: ProcessBackend) -> GuestBox:
    return await backend.create(SPEC, sandbox_id="box")


async def out(box: GuestBox, script: str) -> str:
    result = await box.exec(["bash", "-c", script])
    assert not result.infra_error
    return (result.stdout + result.stderr).decode(errors="backslashreplace")


LOOK = r"""
cd "$1"
find . -type d -printf '%P|d|%m|%T@\n' -o -printf '%P|%y|%m|%s|%n|%T@|%l\n' | sort
find . -type f -size -2k -exec sha256sum {} + | sort -k2
"""
DRESS = """
mkdir -p src/deep "$HOME/.config" empty
echo one > src/one; chmod 640 src/one; touch -d '2001-02-03 04:05:06.123456789' src/one
ln src/one src/deep/same; ln -s ../one src/deep/link; ln -s /nowhere broken
echo secret > locked; chmod 0 locked; mkdir shut; touch shut/in; chmod 0 shut
printf x > sparse; truncate -s 20M sparse; printf y >> sparse
mkfifo pipe; touch "$(printf 'odd\\n name \\377')"; chmod 1770 empty
touch -d '1999-01-01' src/deep
echo setting > "$HOME/.config/it"; echo scratch > "${TMPDIR:-/tmp}/it"
"""


async def look(box: GuestBox) -> str:
    """Describe all files of the working folder; what is shut is opened for it, and its mode then left out."""
    await out(box, "chmod 700 shut; chmod 600 locked")
    return await out(box, f"bash -c {_quoted(LOOK)} look .")


def _quoted(script: str) -> str:
    return "'" + script.replace("'", "'\\''") + "'"


async def test_a_fork_has_the_same_files(backend: ProcessBackend, box: GuestBox) -> None:
    assert await out(box, DRESS) == ""
    size = await backend.snapshot("box", snapshot_id="snap")
    assert 0 < size < 1 << 20, "holes cost nothing"
    fork = await backend.create(SPEC, sandbox_id="fork", snapshot="snap")
    assert await out(fork, "stat -c %a locked shut; cat locked 2>&1 | tail -c 18") in (
        "0\n0\nPermission denied\n",
        "0\n0\nsecret\n",  # an unfenced box of root's
    )
    assert await out(fork, "stat -c %b sparse") != "40962\n", "the hole is one still"
    assert await look(fork) == await look(box)
    assert await out(fork, 'cat "$HOME/.config/it" "${TMPDIR:-/tmp}/it"') == "setting\nscratch\n"
    assert await out(fork, "rm -rf src && touch new && echo more >> sparse && ls") != ""
    assert "src" in await out(box, "ls"), "the original is untouched"
    again = await backend.create(SPEC, sandbox_id="again", snapshot="snap")
    assert await look(again) == await look(box), "and so is the layer"


async def test_what_was_removed_stays_removed(backend: ProcessBackend, box: GuestBox) -> None:
    await out(box, "mkdir -p a/b c; touch a/b/x a/y c/z top; ln -s a link")
    await backend.snapshot("box", snapshot_id="one")
    second = await backend.create(SPEC, sandbox_id="second", snapshot="one")
    await out(
        second, "rm -r a/b top link; mv c d; mkdir a/b; touch a/b/fresh; rm -r d; mkdir c; touch c/other"
    )
    await backend.snapshot("second", snapshot_id="two")
    third = await backend.create(SPEC, sandbox_id="third", snapshot="two")
    wanted = ".\n./a\n./a/b\n./a/b/fresh\n./a/y\n./c\n./c/other\n"
    assert await out(third, "find . | sort") == await out(second, "find . | sort") == wanted
    await out(third, "rm a/y; echo back > top")
    await backend.snapshot("third", snapshot_id="three")
    fourth = await backend.create(SPEC, sandbox_id="fourth", snapshot="three")
    assert await out(fourth, "find . | sort; cat top") == wanted.replace("./a/y\n", "") + "./top\nback\n"


async def test_a_box_goes_on_after_its_snapshot(backend: ProcessBackend, box: GuestBox) -> None:
    async with box.start(["bash", "-c", "while read line; do echo $line; done"]) as command:
        events = aiter(command.events())
        await backend.snapshot("box", snapshot_id="snap")
        command.write_stdin(b"awake\n")
        assert (await anext(events)).data == b"awake\n"  # type: ignore[union-attr]


async def test_restore_replaces_the_files_and_kills(backend: ProcessBackend, box: GuestBox) -> None:
    await out(box, "echo good > state")
    await backend.snapshot("box", snapshot_id="good")
    await out(box, "echo bad > state; touch more; setsid -f sleep 600")
    restored = await backend.restore("box", snapshot="good")
    assert restored.id == "box"
    assert await out(restored, "cat state; ls") == "good\nstate\n"
    with pytest.raises(NotFound, match="closed"):
        await box.exec(["true"])
    with pytest.raises(NotFound, match="'none'"):
        await backend.restore("box", snapshot="none")
    assert await out(restored, "cat state") == "good\n", "a restore that cannot be changes nothing"


async def test_a_layer_in_use_is_not_removed(backend: ProcessBackend, box: GuestBox) -> None:
    with pytest.raises(NotFound, match="'one'"):
        await backend.create(SPEC, sandbox_id="early", snapshot="one")
    await backend.snapshot("box", snapshot_id="one")
    with pytest.raises(InvalidArgument, match="'one' exists"):
        await backend.snapshot("box", snapshot_id="one")
    fork = await backend.create(SPEC, sandbox_id="fork", snapshot="one")
    await backend.snapshot("fork", snapshot_id="two")
    assert await backend.snapshots() == {"one", "two"}
    if await backend.isolation() == "namespaces":
        with pytest.raises(FailedPrecondition, match="sandbox 'fork', snapshot 'two'"):
            await backend.delete_snapshot("one")
    await fork.close()
    await backend.delete_snapshot("two")
    await backend.delete_snapshot("one")
    await backend.delete_snapshot("one")
    assert await backend.snapshots() == set()
    with pytest.raises(NotFound):
        await backend.snapshot("fork", snapshot_id="late")


async def test_layers_outlive_their_server(tmp_path: Path, isolation: Literal["namespaces", "none"]) -> None:
    state = tmp_path / "state"
    for turn in range(3):
        backend = ProcessBackend(root=state, isolation=isolation)
        snapshot = f"turn-{turn - 1}" if turn else ""
        box = await backend.create(SPEC, sandbox_id="box", snapshot=snapshot)
        await out(box, f"echo {turn} >> log")
        await backend.snapshot("box", snapshot_id=f"turn-{turn}")
        if turn == 2:
            assert await out(box, "cat log") == "0\n1\n2\n"
        await backend.close()
        (state / "layers" / "torn.part").mkdir(parents=True)  # as a server killed in mid-snapshot leaves it
    assert sorted(path.name for path in (state / "layers").iterdir()) == [
        "torn.part",
        "turn-0",
        "turn-1",
        "turn-2",
    ]


async def test_a_long_lineage_is_made_flat(
    backend: ProcessBackend, box: GuestBox, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rock_env.backends.process.backend.MAX_LINEAGE", 2)
    known = ""
    for number in range(5):
        made = await backend.create(SPEC, sandbox_id=f"box-{number}", snapshot=known)
        await out(made, f"touch {number}; rm -f {number - 2}")
        known = f"snap-{number}"
        await backend.snapshot(f"box-{number}", snapshot_id=known)
        await made.close()
    made = await backend.create(SPEC, sandbox_id="last", snapshot=known)
    assert await out(made, "ls") == "3\n4\n"
    assert backend._ready is not None
    assert max(len(backend._ready.layers.get(f"snap-{number}").lineage) for number in range(5)) <= 3


async def test_a_failed_snapshot_leaves_no_layer(backend: ProcessBackend, box: GuestBox) -> None:
    deep = "import os\nfor _ in range(450):\n os.mkdir('d'); os.chdir('d')"
    assert await out(box, f'python3 -c "{deep}"') == ""
    with pytest.raises(InvalidArgument, match="400 deep"):
        await backend.snapshot("box", snapshot_id="deep")
    assert await backend.snapshots() == set()
    await out(box, "rm -r d")
    await backend.snapshot("box", snapshot_id="deep")


def test_a_copy_follows_no_link_and_keeps_extended_attributes(tmp_path: Path) -> None:
    source, target, outside = (tmp_path / name for name in ("source", "target", "outside"))
    for folder in (source, target, outside):
        folder.mkdir()
    (outside / "secret").write_text("x")
    (source / "link").symlink_to(outside)
    (source / "file").write_text("12345")
    os.setxattr(source / "file", "user.note", b"kept")
    os.setxattr(source / "file", "user.overlay.origin", b"left out")
    trees.copy_folder(str(source), str(target))
    assert (target / "link").readlink() == outside
    assert os.listxattr(target / "file") == ["user.note"]


def test_what_took_its_own_permissions_away_is_removed(tmp_path: Path) -> None:
    folder = tmp_path / "tree"
    (folder / "a" / "b").mkdir(parents=True)
    (folder / "a" / "b" / "c").touch()
    (folder / "a" / "b").chmod(0)
    (folder / "a").chmod(0)
    layers.remove_tree(folder)
    layers.remove_tree(folder)
    assert not folder.exists()
