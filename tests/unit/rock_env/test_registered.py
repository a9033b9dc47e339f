"""Registered environments are kept whole, found by every process, and never confused with installed ones."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from multiprocessing.pool import ThreadPool
from pathlib import Path

import pytest

from rock_env import plugins
from rock_env.env_workers.catalog import Catalog
from rock_env.errors import FailedPrecondition, InvalidArgument, UnknownName
from rock_env.grading.model import Build, Task, TaskFile, Verifier
from rock_env.tasksets import registered
from rock_env.tasksets.registered import CheckEntry, EnvReport, Registration


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ALE_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


def a_task(name: str = "one", word: bytes = b"\x00\xff") -> Task:
    verifier = Verifier(("sh", "test.sh"), "exit_code", files=(TaskFile("/tests/test.sh", word, 0o755),))
    return Task(name, f"Do {name}.", Build(image="busybox:1.35"), verifier, solution=("bash true",))


def a_record(*tasks: Task, name: str = "mine", source: str = "/somewhere") -> Registration:
    return Registration(
        name=name,
        digest=registered.digest_of(tasks, ["busybox:1.35"] * len(tasks)),
        source=source,
        registered_at=1.5,
        tasks=len(tasks),
        images=("busybox:1.35",),
    )


def kept(*tasks: Task, name: str = "mine") -> Registration:
    record = a_record(*tasks, name=name)
    registered.store(record, tasks)
    return record


def test_what_is_stored_is_found_again() -> None:
    tasks = (a_task(), a_task("two"))
    record = kept(*tasks)
    assert registered.names() == ("mine",)
    assert registered.find("mine") == record
    assert registered.tasks_of(record) == tasks


def test_another_process_finds_it_by_name_with_its_version() -> None:
    record = kept(a_task())
    code = "from rock_env.env_workers.catalog import Catalog; print(Catalog().spec('mine').key, 'mine' in Catalog().names())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == f"mine@{record.version} True\n"


def test_the_same_content_has_the_same_digest_and_other_content_another() -> None:
    one, moved = a_task(), replace(a_task(), source="elsewhere")
    assert registered.digest_of([one], ["a"]) == registered.digest_of([moved], ["a"])
    assert registered.digest_of([one], ["a"]) != registered.digest_of([one], ["b"])
    assert registered.digest_of([one], ["a"]) != registered.digest_of([a_task(word=b"x")], ["a"])


def test_a_new_version_takes_the_place_of_the_old_one_where_it_was_loaded_already(home: Path) -> None:
    catalog = Catalog()
    first = kept(a_task())
    params = catalog.params("mine", "{}")
    assert catalog.task("mine", params, "train/0").instruction.endswith("Do one.")
    second = kept(a_task("two"))
    assert plugins.load_env("mine").version == second.version != first.version
    assert catalog.task("mine", params, "train/0").instruction.endswith("Do two.")
    assert len(list((home / "envs" / "mine").glob("tasks-*"))) == 1


def test_stores_at_the_same_time_leave_one_of_them_whole() -> None:
    versions = [(a_task(word=bytes([number]) * 10_000),) for number in range(8)]
    with ThreadPool(8) as pool:
        pool.map(lambda tasks: kept(*tasks), versions)
    assert registered.tasks_of(registered.find("mine")) in versions


def test_removing_takes_everything_away(home: Path) -> None:
    kept(a_task())
    registered.remove("mine")
    assert registered.names() == ()
    assert not (home / "envs" / "mine").exists()
    with pytest.raises(UnknownName, match="unknown registered environment 'mine'"):
        registered.remove("mine")


@pytest.mark.parametrize("name", ["", "Mine", "a b", "../x", "-x", ".hidden", "x" * 65, "ä"])
def test_a_bad_name_is_refused_and_finds_nothing(name: str) -> None:
    with pytest.raises(InvalidArgument, match="bad environment name"):
        registered.check_name(name)
    assert not registered.known(name)
    with pytest.raises(UnknownName):
        registered.find(name)


def test_a_name_that_was_installed_meanwhile_is_refused_and_says_what_to_do() -> None:
    kept(a_task(), name="sokoban")
    with pytest.raises(InvalidArgument, match="ale env remove sokoban"):
        plugins.load_env("sokoban")


def test_an_unknown_name_says_where_was_looked(home: Path) -> None:
    for find in (plugins.load_env, Catalog().spec):
        with pytest.raises(UnknownName) as caught:
            find("mine")
        assert str(home) in str(caught.value)
        assert "ale env register" in str(caught.value)


def test_a_report_counts_for_the_content_that_was_checked_only() -> None:
    record = kept(a_task())
    checks = (CheckEntry("tasks", "PASS", "1 train", 0.1), CheckEntry("oracle", "FAIL", "reward 0", 0.2))
    report = EnvReport(digest=record.digest, checked_at=2.5, checks=checks)
    registered.store_report(record, report)
    assert registered.report_of(record) == report
    assert not report.passed
    assert registered.report_of(kept(a_task("two"))) is None


def test_a_report_of_what_was_removed_makes_nothing_new(home: Path) -> None:
    record = kept(a_task())
    registered.remove("mine")
    registered.store_report(record, EnvReport(digest=record.digest, checked_at=0.0, checks=()))
    assert not (home / "envs" / "mine").exists()


@pytest.mark.parametrize("file", ["env.json", "tasks"])
def test_a_damaged_file_names_itself_and_the_remedy(home: Path, file: str) -> None:
    kept(a_task(word=file.encode()))  # not one that this process has read before
    path = next((home / "envs" / "mine").glob(f"{file}*"))
    path.write_bytes(b"{")
    with pytest.raises(FailedPrecondition, match=rf"{path.name}.*ale env register"):
        plugins.load_env("mine")


def test_a_folder_that_cannot_be_made_is_refused(home: Path) -> None:
    home.write_text("a file")
    with pytest.raises(InvalidArgument, match="ALE_HOME"):
        kept(a_task())


def test_the_folder_is_the_platforms_own_unless_it_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ALE_HOME")
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setenv("XDG_DATA_HOME", "/data")
    assert registered.home() == Path("/data/ale")
    monkeypatch.setenv("XDG_DATA_HOME", "relative")
    assert registered.home() == Path.home() / ".local" / "share" / "ale"
    monkeypatch.setattr(sys, "platform", "darwin")
    assert registered.home() == Path.home() / "Library" / "Application Support" / "ale"
    monkeypatch.setenv("ALE_HOME", f"~{os.sep}mine")
    assert registered.home() == Path.home() / "mine"
