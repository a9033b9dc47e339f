"""What changed in a box comes out in another one of its image, and no stream gets anything made by way of a link."""

from __future__ import annotations

import contextlib
import io
import json
import os
import shutil
import stat
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rock_env.guest import changes
from rock_env.guest.changes import PLAN
from rock_env.guest.places import coarse_now

pytestmark = pytest.mark.skipif(
    os.geteuid() != 0, reason="a box's root is entered by chroot, which takes root"
)

PROGRAM = """
import encodings.latin_1, json, os, sys, tarfile
from rock_env.guest import changes, steering
root, act, began, most, asked = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), json.loads(sys.argv[5])
os.chroot(root)
os.chdir("/")
pack = lambda: changes._Changes(began, ["/vol"]).pack(most)
os._exit(changes.told(pack if act == "pack" else lambda: changes._unpack(asked)))
"""


def inside(
    root: Path, act: str, *, began: int = 0, most: int = 1 << 30, given: bytes = b"", steering: object = None
) -> subprocess.CompletedProcess[bytes]:
    """Run one act of a box's guest on the files below `root`."""
    words = [sys.executable, "-c", PROGRAM, str(root), act, str(began), str(most), json.dumps(steering)]
    return subprocess.run(words, input=given, capture_output=True, check=False, timeout=60)


def make_image(root: Path) -> None:
    """Lay out an image with an empty volume."""
    for folder in ("a/b", "a/c", "d", "vol", "proc/self"):
        (root / folder).mkdir(parents=True)
    for file in ("a/one", "a/b/two", "d/three"):
        (root / file).write_text(file)
        os.utime(root / file, (10**9, 10**9))
    (root / "link").symlink_to("a/one")
    (root / "proc/self/mountinfo").write_text("1 1 0:1 / / rw\n2 1 0:2 / /vol rw\n3 1 0:3 / /proc rw\n")
    os.utime(root / "proc/self/mountinfo", (10**9, 10**9))


def boxes(folder: Path) -> tuple[Path, Path, int]:
    """Return the roots of two boxes of an image, and when they began."""
    for name in ("one", "two"):
        make_image(folder / name)
    time.sleep(0.02)  # longer than a tick of the clock of files
    return folder / "one", folder / "two", coarse_now()[0]


def described(root: Path) -> dict[str, tuple[object, ...]]:
    found: dict[str, tuple[object, ...]] = {}
    for path in sorted(root.rglob("*")):
        status = path.lstat()
        what: object = path.readlink() if path.is_symlink() else path.read_bytes() if path.is_file() else ""
        mode = 0 if path.is_symlink() else status.st_mode
        found[str(path.relative_to(root))] = (
            mode,
            what,
            status.st_mtime if stat.S_ISREG(status.st_mode) else 0,
            0 if path.is_symlink() else status.st_nlink,  # each name of a link may become one of its own
        )
    return found


NAMES = st.sampled_from(["a", "b", "one", "two", "d", "three", "link", "new", "vol"])
PATHS = st.lists(NAMES, min_size=1, max_size=3).map("/".join)
ACTS = st.tuples(st.sampled_from(["write", "remove", "folder", "link", "hard", "mode", "move"]), PATHS, PATHS)


def change(root: Path, kind: str, path: Path, other: Path) -> None:
    """Do what an agent may do; what cannot be done is not."""
    if kind == "write":
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"written {path.name}")
    elif kind == "remove" and path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    elif kind == "remove":
        path.unlink()
    elif kind == "folder":
        path.mkdir(parents=True)
    elif kind == "link":
        path.symlink_to(other)
    elif kind == "hard":
        os.link(other, path, follow_symlinks=False)
    elif kind == "mode":
        path.chmod(0o700 if path.is_dir() else 0o640)
    elif kind == "move" and other.is_file():
        other.rename(path)


@settings(max_examples=25, deadline=None)
@given(st.lists(ACTS, min_size=1, max_size=8))
def test_another_box_of_the_image_becomes_as_the_first_is(acts: list[tuple[str, str, str]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        one, two, began = boxes(Path(folder))
        for kind, path, other in acts:
            if path != "vol":  # which is mounted
                with contextlib.suppress(OSError):
                    change(one, kind, one / path, one / other)
        before = described(one)
        packed = inside(one, "pack", began=began)
        assert packed.returncode == 0, packed.stderr
        assert described(one) == before
        assert len(packed.stdout) < 100_000
        taken = inside(two, "unpack", given=packed.stdout)
        assert taken.returncode == 0, taken.stderr
        assert described(two) == before


def test_files_that_did_not_change_are_not_packed(tmp_path: Path) -> None:
    one, _, began = boxes(tmp_path)
    (one / "a/b/two").write_text("changed")
    (one / "d/three").unlink()
    packed = inside(one, "pack", began=began)
    with tarfile.open(fileobj=io.BytesIO(packed.stdout)) as tar:
        plan, *members = tar.getmembers()
        file = tar.extractfile(plan)
        assert file is not None
        told = json.load(file)
    assert plan.name == PLAN
    assert {member.name for member in members} == {"vol", "d", "a/b/two"}
    assert told == {"/vol": [[], []], "/d": [[], []]}


def test_a_clock_that_was_set_back_hides_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    class Places:
        began = (10**18, 10**9)
        volumes: tuple[str, ...] = ()

    def since(now: int) -> int:
        seen: list[int] = []
        with monkeypatch.context() as patch:
            patch.setattr(changes, "coarse_now", lambda: (now, 2 * 10**9))
            patch.setattr(changes, "_Changes", lambda began, volumes: seen.append(began))
            with pytest.raises(AttributeError):  # of the noting in place of the changes
                changes.change_act({"changes": "pack", "most_bytes": 1}, Places())()  # type: ignore[arg-type]
        return seen[0]

    assert since(10**18 + 10**9) == 10**18, "a second later"
    assert since(10**18 - 59 * 10**9) == 10**18 - 60 * 10**9, "set back by a minute"
    assert since(10**18 + 61 * 10**9) == 10**18, "set forward"


def test_more_bytes_than_a_snapshot_may_have_are_refused(tmp_path: Path) -> None:
    one, _, began = boxes(tmp_path)
    with (one / "vol/big").open("wb") as file:
        file.truncate(5000)
    packed = inside(one, "pack", began=began, most=4999)
    assert (packed.returncode, packed.stdout) == (1, b"")
    assert packed.stderr == b"Iits changed files hold 5000 bytes, and a snapshot here at most 4999"


def test_a_folder_of_the_image_that_was_moved_as_a_whole_is_refused_by_name(tmp_path: Path) -> None:
    one, two, began = boxes(tmp_path)
    (one / "a").rename(one / "moved")
    taken = inside(two, "unpack", given=inside(one, "pack", began=began).stdout)
    assert taken.returncode == 1
    assert b"/moved has b, c, one that the image has not" in taken.stderr


def stream(plan: object, *members: tuple[str, bytes, str]) -> bytes:
    """Return a stream of changes with these members: name, type, and content or link."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as tar:
        text = json.dumps(plan).encode()
        info = tarfile.TarInfo(PLAN)
        info.size = len(text)
        tar.addfile(info, io.BytesIO(text))
        for name, kind, what in members:
            info = tarfile.TarInfo(name)
            info.type = kind
            if kind == tarfile.REGTYPE:
                info.size = len(what)
                tar.addfile(info, io.BytesIO(what.encode()))
            else:
                info.linkname = what
                tar.addfile(info)
    return buffer.getvalue()


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (stream({}, ("../x", tarfile.REGTYPE, "x")), b"leads out"),
        (stream({}, ("/x", tarfile.REGTYPE, "x")), b"leads out"),
        (stream({}, ("link/x", tarfile.REGTYPE, "x")), b"passes through 'link'"),
        (stream({}, ("x", tarfile.CHRTYPE, "")), b"a device"),
        (stream({}, ("x", tarfile.SYMTYPE, "d"), ("x/three", tarfile.REGTYPE, "x")), b"passes through 'x'"),
        (stream({}, ("x", tarfile.LNKTYPE, "../y")), b"no path"),
        (stream({"/d/../..": [[], []]}), b"no path"),
        (stream({"/d": [["absent"], []]}), b"/d has absent"),
        (stream([1, 2]), b"not the changes of a box"),
        (stream({"/d": 3}), b"not the changes of a box"),
        (stream({}, ("d/three", tarfile.REGTYPE, "x" * 2000))[:2048], b"ended within a file"),
        (b"", b"not the changes of a box"),
        (b"\0" * 10240, b"does not begin with the plan"),
        (b"x" * 10240, b"not the changes of a box"),
    ],
)
def test_a_stream_that_is_no_boxs_changes_is_refused_and_follows_no_link(
    tmp_path: Path, given: bytes, said: bytes
) -> None:
    _, two, _ = boxes(tmp_path)
    (two / "link").unlink()
    (two / "link").symlink_to("/d")
    before = described(two / "d").keys()
    taken = inside(two, "unpack", given=given)
    assert taken.returncode == 1, taken.stdout
    assert said in taken.stderr
    assert described(two / "d").keys() == before


def test_what_is_mounted_is_neither_packed_nor_removed(tmp_path: Path) -> None:
    one, two, began = boxes(tmp_path)
    (one / "proc/new").write_text("of the system")
    (one / "vol/kept").write_text("of the box")
    packed = inside(one, "pack", began=began)
    assert inside(two, "unpack", given=packed.stdout).returncode == 0
    assert not (two / "proc/new").exists()
    assert (two / "vol/kept").read_text() == "of the box"
    nothing: Mapping[str, object] = {"/": [[], []]}
    assert inside(two, "unpack", given=stream(nothing)).returncode == 0
    assert sorted(path.name for path in two.iterdir()) == ["proc", "vol"]
    assert stat.S_ISDIR((two / "proc/self").stat().st_mode)


IMAGE = {
    "usr/bin/python3": "the interpreter",
    "usr/bin/tool": "a program",
    "usr/lib/python3/dist-packages/pytest/__init__.py": "the runner",
    "usr/lib/python3/dist-packages/lib/__init__.py": "a library",
    "etc/pip.conf": "settings",
    "work/main.py": "the task",
    "work/pyproject.toml": "[project]\nname = 'x'\n",
    "work/data/input": "an input",
}
WORK = {
    "work/main.py": "solved",
    "work/data/output": "an output",
    "usr/lib/python3/dist-packages/lib/__init__.py": "rewritten",
    "usr/lib/python3/dist-packages/added/__init__.py": "installed",
    "usr/bin/helper": "a new program",
    "etc/service.conf": "settings of a service",
}
HACKS = {
    "usr/bin/python3": "another one",
    "usr/local/bin/pytest": "before the runner",
    "usr/lib/python3/dist-packages/pytest/__init__.py": "patched",
    "usr/lib/python3/dist-packages/sitecustomize.py": "at each start",
    "etc/pip.conf": "another index",
    "work/conftest.py": "hooks",
    "work/json.py": "in the way",
    "work/__pycache__/main.pyc": "compiled",
    "work/re/__init__.py": "a package in the way",
}


def lay(root: Path, files: Mapping[str, str]) -> None:
    for path, text in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).unlink(missing_ok=True)
        (root / path).write_text(text)


def clean_boxes(folder: Path) -> tuple[Path, Path, int]:
    for name in ("one", "two"):
        make_image(folder / name)
        lay(folder / name, IMAGE)
    time.sleep(0.02)
    return folder / "one", folder / "two", coarse_now()[0]


STEERING = {"runs": ["tool"], "asked": ["output"], "workdir": "work"}


def taken_over(one: Path, two: Path, began: int) -> list[str]:
    packed = inside(one, "pack", began=began)
    assert packed.returncode == 0, packed.stderr
    done = inside(two, "unpack", given=packed.stdout, steering=STEERING)
    assert done.returncode == 0, done.stderr
    left_out: list[str] = json.loads(done.stdout)
    return left_out


def test_a_clean_box_takes_the_work_and_nothing_that_steers_a_grade(tmp_path: Path) -> None:
    one, two, began = clean_boxes(tmp_path)
    lay(
        one,
        WORK
        | HACKS
        | {"work/pyproject.toml": "[project]\nname = 'y'\n[tool.pytest.ini_options]\naddopts = '-x'\n"},
    )
    (one / "work/data/input").unlink()
    left_out = taken_over(one, two, began)
    for path, text in WORK.items():
        assert (two / path).read_text() == text
    for path in HACKS:
        assert not (two / path).exists() if path not in IMAGE else (two / path).read_text() == IMAGE[path], (
            path
        )
    assert (two / "work/pyproject.toml").read_text() == "[project]\nname = 'y'\n"
    assert not (two / "work/data/input").exists(), "what the agent removed of its work is gone"
    assert set(left_out) == {
        path.removesuffix("/main.pyc") if path.startswith("work/") else path for path in HACKS
    } | {"work/pyproject.toml"}


@pytest.mark.parametrize("gone", ["usr/bin/python3", "usr/bin", "usr/lib/python3", "usr"])
def test_what_runs_grades_cannot_be_removed_nor_replaced_by_a_file(tmp_path: Path, gone: str) -> None:
    for number, replacement in enumerate(("", "a file", "/work")):
        one, two, began = clean_boxes(tmp_path / str(number))
        path = one / gone
        shutil.rmtree(path) if path.is_dir() else path.unlink()
        if replacement.startswith("/"):
            path.symlink_to(replacement)
        elif replacement:
            path.write_text(replacement)
        before = described(two / "usr")
        left_out = taken_over(one, two, began)
        assert {each: what[:2] for each, what in described(two / "usr").items()} == {
            each: what[:2] for each, what in before.items()
        }
        assert left_out


def test_links_to_what_is_left_out_are_left_out(tmp_path: Path) -> None:
    one, two, began = clean_boxes(tmp_path)
    (one / "usr/bin/python3").write_text("another one")
    os.link(one / "usr/bin/python3", one / "usr/bin/zz")
    os.link(one / "work/main.py", one / "work/same")
    (one / "work/soft").symlink_to("/usr/bin/python3")
    left_out = taken_over(one, two, began)
    assert left_out == ["usr/bin/python3", "usr/bin/zz"]
    assert (two / "work/same").samefile(two / "work/main.py")
    assert (two / "usr/bin/python3").read_text() == IMAGE["usr/bin/python3"]
    assert (two / "work/soft").is_symlink()


def test_a_large_file_is_judged_by_its_name(tmp_path: Path) -> None:
    one, two, began = clean_boxes(tmp_path)
    for path in ("work/large", "usr/bin/python3", "usr/lib/python3/dist-packages/x.pth", "work/after"):
        (one / path).write_bytes(b"x" * (2 << 20))
    assert taken_over(one, two, began) == ["usr/bin/python3", "usr/lib/python3/dist-packages/x.pth"]
    assert [(two / f"work/{name}").stat().st_size for name in ("large", "after")] == [2 << 20] * 2


def test_a_stream_without_the_folders_of_its_members_is_refused(tmp_path: Path) -> None:
    _, two, _ = clean_boxes(tmp_path)
    given = stream({}, ("work/late/notes", tarfile.REGTYPE, "in no folder"))
    done = inside(two, "unpack", given=given, steering=STEERING)
    assert done.returncode == 1
    assert b"comes before its folder" in done.stderr
    assert not (two / "work/late").exists()
