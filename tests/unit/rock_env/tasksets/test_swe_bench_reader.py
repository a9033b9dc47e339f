"""SWE-bench and SWE-smith rows: read with a local copy of the repository or with an image that holds it."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from rock_env.errors import InvalidArgument
from rock_env.grading.model import Task, Unread
from rock_env.tasksets.detect import read_each, read_tasks

FILES = {
    "pkg/core.py": "def add(a, b):\n    return a - b\n",
    "pkg/data.bin": "\0\1",
    "tests/test_core.py": "old tests\n",
    "tests/test_gone.py": "gone\n",
    "run.sh": "#!/bin/sh\n",
}


@dataclass(frozen=True)
class Copy:
    """A repository with one commit more than the instances know of."""

    repos: Path
    base: str
    patch: str
    test_patch: str


def git(folder: Path, *words: str) -> str:
    env = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    for who in ("AUTHOR", "COMMITTER"):
        env |= {f"GIT_{who}_NAME": "T", f"GIT_{who}_EMAIL": "t@localhost"}
    env |= {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}
    return subprocess.run(
        ["git", *words], cwd=folder, env=env, capture_output=True, text=True, check=True
    ).stdout


def write(folder: Path, files: Mapping[str, str]) -> None:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Copy:
    repos = tmp_path_factory.mktemp("repos")
    work = repos / "shop__calc"
    write(work, FILES)
    (work / "run.sh").chmod(0o755)
    (work / "link").symlink_to("run.sh")
    git(work, "init", "-q", "-b", "main", "--template=")
    git(work, "add", "-A")
    git(work, "commit", "-q", "-m", "one")
    base = git(work, "rev-parse", "HEAD").strip()
    write(work, {"pkg/core.py": "def add(a, b):\n    return a + b\n", "pkg/more.py": "MORE = 1\n"})
    patch_files = ["pkg/core.py", "pkg/more.py"]
    write(work, {"tests/test_core.py": "new tests\n", "tests/data/a.json": "{}\n"})
    (work / "tests/test_gone.py").unlink()
    git(work, "add", "-A")
    git(work, "commit", "-q", "-m", "the fix")
    patch = git(work, "diff", base, "HEAD", "--", *patch_files)
    return Copy(repos, base, patch, git(work, "diff", base, "HEAD", "--", "tests"))


def row(copy: Copy, **fields: Any) -> dict[str, Any]:
    return {
        "repo": "shop/calc",
        "instance_id": "shop__calc-1",
        "base_commit": copy.base,
        "patch": copy.patch,
        "test_patch": copy.test_patch,
        "problem_statement": "add subtracts",
        "hints_text": "look at the sign",
        "created_at": "2024-01-01",
        "version": "1.0",
        "FAIL_TO_PASS": json.dumps(["tests/test_core.py::test_add"]),
        "PASS_TO_PASS": json.dumps(["tests/test_core.py::test_zero[a::b]"]),
        "environment_setup_commit": copy.base,
        **fields,
    }


def read(folder: Path, rows: Any, **options: Any) -> list[Task]:
    file = folder / "rows.json"
    file.write_text(json.dumps(rows))
    return read_tasks(file, contexts=folder / "contexts", **options)


def read_one(folder: Path, copy: Copy, fields: Mapping[str, Any] | None = None, **options: Any) -> Task:
    options = {"repos": copy.repos, "image": "python:3.11-slim", **options}
    kept = {name: value for name, value in row(copy, **(fields or {})).items() if value is not ...}
    (task,) = read(folder, [kept], **options)
    return task


def problem(folder: Path, copy: Copy, fields: Mapping[str, Any], **options: Any) -> str:
    with pytest.raises(InvalidArgument) as raised:
        read_one(folder, copy, fields, **options)
    return str(raised.value)


def test_an_instance_is_read_with_a_copy_of_its_repository(tmp_path: Path, copy: Copy) -> None:
    task = read_one(tmp_path, copy, install="pip install -e .")
    assert (task.name, task.instruction, task.workdir) == ("shop__calc-1", "add subtracts", "/testbed")
    verifier = task.verifier
    assert verifier.must_pass == ("tests/test_core.py::test_add",)
    assert verifier.keep_passing == ("tests/test_core.py::test_zero[a::b]",)
    assert {file.path: file.content for file in verifier.files} == {
        "/testbed/tests/data/a.json": b"{}\n",
        "/testbed/tests/test_core.py": b"new tests\n",
    }
    first, second, third = verifier.command[2].split("\n")
    assert first == "rm -f -- tests/test_gone.py"
    assert "for path in *; do case ' __future__ _abc " in second
    assert (
        ' case "$path" in link|pkg|run.sh|tests) true ;; *) false ;; esac || rm -rf -- "$path" ;;' in second
    )
    assert third == "python -m pytest -rA -p no:cacheprovider tests/test_core.py"
    assert (verifier.parser, verifier.workdir, verifier.grade_in) == ("pytest", "/testbed", "pristine")
    assert [action.split("\n")[0] for action in task.solution] == [
        "edit pkg/core.py",
        "bash mkdir -p pkg && cat >pkg/more.py <<'END'",
    ]
    assert dict(task.labels)["environment_setup_commit"] == copy.base
    context = task.build.context
    assert context is not None
    assert (context / "Dockerfile").read_text().splitlines() == [
        "FROM python:3.11-slim",
        "WORKDIR /testbed",
        "COPY repo/ /testbed/",
        'RUN ["sh", "-ec", "pip install -e ."]',
    ]


def test_the_project_is_the_base_commit_without_its_history(tmp_path: Path, copy: Copy) -> None:
    context = read_one(tmp_path, copy).build.context
    assert context is not None
    repo = context / "repo"
    assert {name: (repo / name).read_text() for name in FILES} == FILES
    assert os.access(repo / "run.sh", os.X_OK)
    assert (repo / "link").readlink() == Path("run.sh")
    assert git(repo, "log", "--all", "--format=%s").splitlines() == ["The project as it is given"]
    assert git(repo, "status", "--porcelain") == ""
    kinds = git(repo, "cat-file", "--batch-all-objects", "--batch-check=%(objecttype)").split()
    assert kinds.count("commit") == 1
    assert read_one(tmp_path, copy).build.context == context, "laid out once"


def test_equal_contexts_are_equal_bytes(tmp_path: Path, copy: Copy) -> None:
    found = []
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        context = read_one(tmp_path / name, copy).build.context
        assert context is not None
        paths = (path for path in sorted(context.rglob("*")) if path.is_file())
        found.append({path.relative_to(context): path.read_bytes() for path in paths})
    assert found[0] == found[1]


@pytest.mark.parametrize("name", ["shop__calc.git", "shop/calc", "shop/calc.git"])
def test_a_copy_may_be_bare_and_named_in_several_ways(tmp_path: Path, copy: Copy, name: str) -> None:
    place = tmp_path / "repos" / name
    place.parent.mkdir(parents=True)
    git(tmp_path, "clone", "-q", "--bare", str(copy.repos / "shop__calc"), str(place))
    context = read_one(tmp_path, copy, repos=tmp_path / "repos").build.context
    assert context is not None
    assert (context / "repo" / "run.sh").read_text() == "#!/bin/sh\n"


def test_the_copy_of_the_repository_is_left_as_it_was(tmp_path: Path, copy: Copy) -> None:
    def objects() -> list[Path]:
        return sorted(copy.repos.rglob("*"))

    before = objects()
    read_one(tmp_path, copy)
    assert objects() == before


def test_a_fix_that_steers_tests_or_removes_files_is_graded_in_a_fork(tmp_path: Path, copy: Copy) -> None:
    removed = git(copy.repos / "shop__calc", "diff", copy.base, "HEAD", "--", "tests/test_gone.py")
    assert read_one(tmp_path, copy, {"patch": removed}).verifier.grade_in == "fork"
    assert read_one(tmp_path, copy, {"patch": removed}, grade_in="pristine").verifier.grade_in == "pristine"


def test_names_that_are_not_a_tests_alone_are_told_apart(tmp_path: Path, copy: Copy) -> None:
    place = "tests/test_core.py::test_add"
    names = ["[a", "[a b]", "[/tmp/x]", "[https://example.org/x-1]", "[a/tmp/b]", ""]
    fields = {"FAIL_TO_PASS": [place + name for name in names], "PASS_TO_PASS": ["[100%]", "[ 4%]"]}
    task = read_one(tmp_path, copy, fields, test_command="pytest {tests}")
    told = {name: value for name, value in task.labels if name.startswith("tests_")}
    assert told == {
        "tests_cut_at_space": "1",
        "tests_named_by_path": "1",
        "tests_named_by_address": "1",
        "tests_that_are_none": "2",
    }
    assert task.verifier.keep_passing == ()
    assert task.verifier.cut_at_space
    assert " tests/test_core.py::test_add '" in task.verifier.command[2], "pytest knows no cut name"


def test_hints_are_told_only_if_asked_for(tmp_path: Path, copy: Copy) -> None:
    task = read_one(tmp_path, copy, hints=True)
    assert task.instruction == "add subtracts\n\nHints:\nlook at the sign"


def test_the_bug_of_swe_smith_is_where_the_agent_begins(tmp_path: Path, copy: Copy) -> None:
    bug = "--- a/pkg/core.py\n+++ b/pkg/core.py\n@@ -1,2 +1,2 @@\n def add(a, b):\n-    return a - b\n+    return b - a\n"
    fields = {"patch": bug, "repo": f"swesmith/shop__calc.{copy.base[:8]}", "image_name": "some/image"}
    lists = {"FAIL_TO_PASS": ["tests/test_core.py::test_add"], "PASS_TO_PASS": ["tests/test_gone.py::test_x"]}
    absent = dict.fromkeys(("base_commit", "test_patch", "environment_setup_commit"), ...)
    task = read_one(tmp_path, copy, {**fields, **lists, **absent})
    assert task.build.context is not None
    repo = task.build.context / "repo"
    assert (repo / "pkg/core.py").read_text() == "def add(a, b):\n    return b - a\n"
    assert not (repo / "tests/test_core.py").exists(), "the tests that fail are hidden, as in the data set"
    assert (repo / "tests/test_gone.py").exists()
    assert [file.path for file in task.verifier.files] == [
        "/testbed/tests/test_core.py",
        "/testbed/tests/test_gone.py",
    ]
    assert task.solution == (
        "edit pkg/core.py\n<<<<<<<\n    return b - a\n=======\n    return a - b\n>>>>>>>",
    )
    assert task.source.startswith("SWE-smith")


@pytest.mark.parametrize("style", ["swe-bench", "swe-smith"])
def test_a_patch_keeps_an_empty_last_line_of_its_context(tmp_path: Path, style: str) -> None:
    work = tmp_path / "repos" / "shop__calc"
    write(work, {"late.py": "x = 1\n\n\ny = 1\n", "tests/test_core.py": "old tests\n"})
    for words in (["init", "-q", "-b", "main", "--template="], ["add", "-A"], ["commit", "-q", "-m", "one"]):
        git(work, *words)
    copy = Copy(tmp_path / "repos", git(work, "rev-parse", "HEAD").strip(), "", "")
    patch = "--- a/late.py\n+++ b/late.py\n@@ -1,3 +1,3 @@\n-x = 1\n+x = 2\n \n \n"
    task = read_one(tmp_path, copy, {"patch": patch, "environment_setup_commit": ...}, style=style)
    assert len(task.solution) == 1


def test_an_image_may_hold_the_project(tmp_path: Path, copy: Copy) -> None:
    (task,) = read(tmp_path, [row(copy)], image="eval/{repo}:{instance_id}", workdir="/w")
    assert task.build.context is not None
    lines = (task.build.context / "Dockerfile").read_text().splitlines()
    assert lines[:2] == ["FROM eval/shop__calc:shop__calc-1", "WORKDIR /w"]
    assert f"git checkout -q -f {copy.base} &&" in lines[2]
    assert "rm -rf .git" in lines[2]
    assert [file.content.decode() for file in task.verifier.files] == [copy.test_patch]
    assert "git apply --whitespace=nowarn /tmp/hidden-tests.patch" in task.verifier.command[2]
    assert task.solution[0].startswith("bash git apply --whitespace=nowarn - <<'END_OF_PATCH'\ndiff --git")
    assert task.verifier.grade_in == "fork"


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"instance_id": ...}, "instance_id: it is missing or empty"),
        ({"base_commit": ""}, "base_commit: it is missing or empty"),
        ({"base_commit": "0" * 40}, "has no commit '000"),
        ({"repo": "shop/other"}, "no copy of the repository 'shop/other': looked for "),
        ({"problem_statement": None}, "problem_statement: it is missing or empty"),
        ({"FAIL_TO_PASS": "[]"}, "FAIL_TO_PASS: it names no test"),
        ({"FAIL_TO_PASS": "test_a, test_b"}, "FAIL_TO_PASS: got 'test_a, test_b', expected a list of tests"),
        ({"PASS_TO_PASS": [1]}, "PASS_TO_PASS: got [1], expected a list of tests"),
        ({"patch": "--- a/no\n+++ b/no\n@@ -1 +1 @@\n-x\n+y\n"}, "(shop__calc-1): patch does not apply to"),
        ({"test_patch": "nonsense"}, "(shop__calc-1): test_patch does not apply to"),
        ({"image_assets": {}, "setup": "x"}, "setup: this field is not one of the format's"),
    ],
)
def test_what_is_wrong_with_a_row_is_named(
    tmp_path: Path, copy: Copy, fields: dict[str, Any], said: str
) -> None:
    assert said in problem(tmp_path, copy, fields)


def test_what_is_wrong_with_the_options_is_named(tmp_path: Path, copy: Copy) -> None:
    assert "needs the option `image`" in problem(tmp_path, copy, {}, image="")
    assert "known are {files}, {modules}, {tests}" in problem(tmp_path, copy, {}, test_command="run {file}")
    with pytest.raises(InvalidArgument, match="nothing says where the project's files are"):
        read(tmp_path, [row(copy)])
    with pytest.raises(InvalidArgument, match=r"`prepare` \('make'\) runs in a tree of the option `repos`"):
        read(tmp_path, [row(copy)], image="some", prepare="make")
    smith = {name: value for name, value in row(copy).items() if name != "test_patch"}
    with pytest.raises(InvalidArgument, match="SWE-smith instances needs the option `repos`"):
        read(tmp_path, [smith], image="some")


def test_rows_come_in_three_forms(tmp_path: Path, copy: Copy) -> None:
    rows = [row(copy, instance_id=name) for name in ("one", "two")]
    options = {"repos": copy.repos, "image": "i", "contexts": tmp_path / "contexts"}
    lines = tmp_path / "rows.jsonl"
    lines.write_text("\n".join(json.dumps(each) for each in rows) + "\n\n")
    assert [task.name for task in read_tasks(lines, **options)] == ["one", "two"]
    table = tmp_path / "rows.parquet"
    if importlib.util.find_spec("pyarrow") is None:
        table.write_bytes(b"PAR1")
        with pytest.raises(InvalidArgument, match="needs the package pyarrow: pip install pyarrow"):
            read_tasks(table, **options)
    else:
        arrow, parquet = (importlib.import_module(name) for name in ("pyarrow", "pyarrow.parquet"))
        parquet.write_table(arrow.Table.from_pylist(rows), table)
        assert [task.name for task in read_tasks(table, **options)] == ["one", "two"]
        table.write_bytes(b"PAR1")
        with pytest.raises(InvalidArgument, match="is no parquet file"):
            read_tasks(table, **options)


def test_a_second_task_of_a_name_is_none(tmp_path: Path, copy: Copy) -> None:
    for file, names in {"a.json": ["one", "two", "one"], "b.json": ["two"]}.items():
        rows = [
            row(copy, instance_id=name, problem_statement=f"{file} {at}") for at, name in enumerate(names)
        ]
        (tmp_path / file).write_text(json.dumps(rows))
    options = {"image": "some", "contexts": tmp_path / "contexts"}
    found = read_each(tmp_path, **options)
    assert [task.instruction for task in found if isinstance(task, Task)] == ["a.json 0", "a.json 1"]
    left = [task for task in found if isinstance(task, Unread)]
    assert [task.name for task in left] == [
        f"SWE-bench {tmp_path}/a.json row 3 (one)",
        f"SWE-bench {tmp_path}/b.json row 1 (two)",
    ]
    assert f"the name 'two' is that of SWE-bench {tmp_path}/a.json row 2 (two), too" in left[1].why
    with pytest.raises(InvalidArgument, match=r"the name 'one' is that of .*row 1 \(one\), too"):
        read_tasks(tmp_path, **options)


def test_a_row_that_cannot_be_read_costs_no_other(tmp_path: Path, copy: Copy) -> None:
    rows = [row(copy, instance_id=f"n{number}") for number in range(5)]
    rows[1] |= {"FAIL_TO_PASS": "[]", "problem_statement": "one\u2028line"}
    rows[2] |= {"base_commit": "0" * 40}
    rows[4] |= {"problem_statement": "one\u2028line"}
    lines = [json.dumps(each, ensure_ascii=False) for each in rows]
    file = tmp_path / "rows.jsonl"
    file.write_text("\n".join([*lines[:4], "{", "7", lines[4]]), encoding="utf-8")
    options = {"repos": copy.repos, "image": "i", "contexts": tmp_path / "contexts"}
    with pytest.raises(InvalidArgument) as raised:
        read_tasks(file, **options)
    for place, why in {
        "row 2 (n1)": "FAIL_TO_PASS: it names no test",
        "row 3 (n2)": f"{copy.repos / 'shop__calc'} has no commit",
        "line 5": "is no JSON",
        "row 6": "is a int, expected an object",
    }.items():
        (line,) = [line for line in str(raised.value).splitlines() if f"{file} {place}" in line]
        assert why in line
    found = read_each(file, **options)
    assert [each.name for each in found] == [
        "n0",
        "rows.jsonl row 2 (n1)",
        "rows.jsonl row 3 (n2)",
        "n3",
        "rows.jsonl line 5",
        "rows.jsonl row 6",
        "n4",
    ]
    assert [each.name for each in found if isinstance(each, Task)] == ["n0", "n3", "n4"]


@pytest.mark.parametrize("option", [{"image": ""}, {"test_command": "run {file}"}])
def test_what_is_wrong_with_an_option_is_said_once(
    tmp_path: Path, copy: Copy, option: dict[str, str]
) -> None:
    with pytest.raises(InvalidArgument) as raised:
        read(tmp_path, [row(copy)] * 2, **{"repos": copy.repos, "image": "i", **option})
    assert len(str(raised.value).splitlines()) == 1


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("a.json", "[1]", "row 1 is a int, expected an object"),
        ("a.json", "[", "is no JSON"),
        ("a.jsonl", "\n", "has no rows"),
        ("a.jsonl", '{"a": 1}\n{', "line 2 is no JSON"),
    ],
)
def test_a_file_of_no_rows_is_named(tmp_path: Path, name: str, text: str, said: str) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(InvalidArgument) as raised:
        read_tasks(tmp_path / name)
    assert said in str(raised.value)
