"""Control groups of boxes, on a tree of plain files for either version: where, which limits, what is left."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from rock_env.backends.process import cgroups

LIMITS = {"memory_bytes": 3 << 30, "pids": 41, "cpus": 1.5}


class Tree:
    """A fake of what the kernel shows of its groups."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.mountinfo = folder / "mountinfo"
        self.own = folder / "own"

    def find(self) -> cgroups.Places:
        return cgroups.find(mountinfo=str(self.mountinfo), own=str(self.own))


@pytest.fixture
def separate(tmp_path: Path) -> Tree:
    """Version 1, with this process in the group /outer of memory, and an empty version 2 beside it."""
    tree = Tree(tmp_path)
    lines, own = [], ["0::/"]
    for number, name in enumerate(("memory", "pids", "cpu")):
        folder = tmp_path / name
        (folder / "outer").mkdir(parents=True)
        lines.append(f"{number} 1 0:{number} / {folder} rw,relatime - cgroup cgroup rw,{name}")
        own.append(f"{number + 1}:{name}:{'/outer' if name == 'memory' else '/'}")
    (tmp_path / "unified").mkdir()
    (tmp_path / "unified" / "cgroup.controllers").write_text("hugetlb\n")
    lines.append(f"9 1 0:9 / {tmp_path / 'unified'} rw - cgroup2 cgroup2 rw")
    tree.mountinfo.write_text("\n".join(lines))
    tree.own.write_text("\n".join(own))
    return tree


@pytest.fixture
def unified(tmp_path: Path) -> Tree:
    """Version 2, with this process in /server.service, to which all controllers are delegated."""
    tree = Tree(tmp_path)
    own = tmp_path / "fs" / "server.service"
    own.mkdir(parents=True)
    (own / "cgroup.controllers").write_text("cpu io memory pids\n")
    tree.mountinfo.write_text(f"9 1 0:9 / {tmp_path / 'fs'} rw - cgroup2 cgroup2 rw\n")
    tree.own.write_text("0::/server.service\n")
    return tree


def values(folder: Path) -> dict[str, str]:
    return {file.name: file.read_text() for file in folder.iterdir()}


def test_version_1_has_a_group_per_controller_below_our_own(separate: Tree) -> None:
    places = separate.find()
    assert places == {
        "memory": str(separate.folder / "memory/outer/rock"),
        "pids": str(separate.folder / "pids/rock"),
        "cpu": str(separate.folder / "cpu/rock"),
    }
    with pytest.raises(FileNotFoundError, match="oom_control"):  # the kernel would have made that file
        cgroups.join(places, "box-1", LIMITS)
    memory, pids, cpu = (values(Path(places[name], "box-1")) for name in ("memory", "pids", "cpu"))
    most = str(3 << 30)
    assert memory == {"memory.limit_in_bytes": most, "memory.memsw.limit_in_bytes": most, "tasks": "0"}
    assert pids == {"pids.max": "41", "tasks": "0"}
    assert cpu == {"cpu.cfs_quota_us": "150000", "tasks": "0"}


def test_version_2_has_one_group_with_controllers_passed_down(unified: Tree) -> None:
    places = unified.find()
    own = unified.folder / "fs" / "server.service"
    assert places == {"unified": str(own / "rock")}
    for folder in (own, own / "rock"):
        assert (folder / "cgroup.subtree_control").read_text() == "+memory +pids +cpu"
    with pytest.raises(FileNotFoundError, match=r"memory\.events"):
        cgroups.join(places, "box-1", LIMITS)
    assert values(own / "rock" / "box-1") == {
        "memory.max": str(3 << 30),
        "memory.swap.max": "0",
        "pids.max": "41",
        "cpu.max": "150000 100000",
        "cgroup.procs": "0",
    }


def test_version_2_moves_the_server_and_its_workers_aside(
    unified: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = unified.folder / "fs" / "server.service"
    written: list[tuple[str, str]] = []

    def write(path: str, value: object) -> None:
        moved = any(name.endswith("cgroup.procs") for name, _ in written)
        if not moved and path == str(own / "cgroup.subtree_control"):
            raise OSError(
                16, "Device or resource busy"
            )  # as the kernel says while processes are in the group
        written.append((path.removeprefix(f"{own}/"), str(value)))

    monkeypatch.setattr(cgroups, "_write", write)
    with subprocess.Popen(["sleep", "600"]) as worker:
        (own / "cgroup.procs").write_text(f"1\n{os.getpid()}\n{worker.pid}\n")
        unified.find()
        worker.kill()
    moved = {int(value) for path, value in written if path == "rock-server/cgroup.procs"}
    assert moved == {os.getpid(), worker.pid}, "and not process 1, which is not ours"
    assert written[-2:] == [
        ("cgroup.subtree_control", "+memory +pids +cpu"),
        ("rock/cgroup.subtree_control", "+memory +pids +cpu"),
    ]


def test_no_limit_is_no_limit_and_little_is_not_none(unified: Tree) -> None:
    places = unified.find()
    with pytest.raises(FileNotFoundError):
        cgroups.join(places, "free", {"memory_bytes": 0, "pids": 0, "cpus": 0})
    assert set(values(Path(places["unified"], "free"))) == {"cgroup.procs"}
    with pytest.raises(FileNotFoundError):
        cgroups.join(places, "slow", {"memory_bytes": 0, "pids": 0, "cpus": 0.0001})
    assert (Path(places["unified"], "slow") / "cpu.max").read_text() == "1000 100000", "the kernel's least"


def test_the_counter_is_handed_out(separate: Tree) -> None:
    places = separate.find()
    made = os.makedirs

    def makedirs(path: str) -> None:
        made(path)
        Path(path, "memory.oom_control").write_text("oom_kill_disable 0\nunder_oom 0\noom_kill 3\n")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "makedirs", makedirs)
        fd = cgroups.join(places, "box-1", LIMITS)
    assert os.pread(fd, 100, 0).endswith(b"oom_kill 3\n")
    os.close(fd)


def test_what_is_left_is_listed_and_removed(separate: Tree) -> None:
    places = separate.find()
    for name in ("memory", "pids"):
        Path(places[name], "left").mkdir()
    assert cgroups.groups(places) == {"left"}
    Path(places["pids"], "left", "cgroup.procs").write_text("17\n18\n")
    assert cgroups.processes(places, "left") == {17, 18}
    Path(places["pids"], "left", "cgroup.procs").unlink()
    cgroups.remove(places, "left")
    cgroups.remove(places, "left")
    assert cgroups.groups(places) == set()


def test_empty_groups_are_swept_when_they_are_old(separate: Tree) -> None:
    places = separate.find()
    old, young, busy = (Path(places["pids"], name) for name in ("old", "young", "busy"))
    for folder in (old, young, busy):
        folder.mkdir()
    (busy / "cgroup.procs").write_text("1")  # a folder that is not empty stands for a group that is not
    for folder in (old, busy):
        os.utime(folder, (0, 0))
    cgroups.sweep(places, older_than_s=60)
    assert cgroups.groups(places) == {"young", "busy"}
    assert not Path(places["memory"]).exists(), "nothing was in it"
    with pytest.raises(FileNotFoundError, match="oom_control"):
        cgroups.join(places, "next", LIMITS)
    assert Path(places["memory"], "next").exists(), "it comes back when it is needed"


def test_version_2_finds_its_folder_again_from_aside(unified: Tree) -> None:
    own = unified.folder / "fs" / "server.service"
    (own / "rock-server").mkdir()
    (own / "rock-server" / "cgroup.controllers").write_text("memory pids\n")
    unified.own.write_text("0::/server.service/rock-server\n")
    assert unified.find() == {"unified": str(own / "rock")}


def test_without_controllers_it_says_so(separate: Tree) -> None:
    separate.mountinfo.write_text("")
    with pytest.raises(OSError, match="'memory' is mounted"):
        separate.find()


def test_a_group_is_made_while_another_server_sweeps_the_folder_above_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    above, make, sweeps = tmp_path / "rock", os.mkdir, iter(range(3))

    def swept(path: str, *more: int) -> None:
        if path.endswith("box") and next(sweeps, None) is not None:
            above.rmdir()
        make(path, *more)

    monkeypatch.setattr(os, "mkdir", swept)
    cgroups.make_group(str(above / "box"))
    assert (above / "box").is_dir()
    assert next(sweeps, None) is None, "each sweep was survived"
