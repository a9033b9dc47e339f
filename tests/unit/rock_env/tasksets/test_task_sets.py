"""What task sets of all formats share: detection, splits, edits of patches, and the environment's making."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rock_env.errors import InvalidArgument, Unimplemented, UnknownName
from rock_env.grading.model import Build, Task, TaskFile, Unread, Verifier
from rock_env.tasksets.detect import read_each, read_tasks
from rock_env.tasksets.edits import edits_between
from rock_env.tasksets.environment import TaskSetParams, make_env_spec, solution_actions
from rock_env.tasksets.images import image_name
from rock_env.tasksets.source import split_tasks
from rock_env.tools import Edit, parse_call
from rock_env.tools.edits import Applied, apply_edit

BUILD = Build(image="some:1")


def task(name: str, **fields: object) -> Task:
    verifier = Verifier(command=("true",), parser="exit_code")
    return replace(Task(name=name, instruction=f"do {name}", build=BUILD, verifier=verifier), **fields)  # type: ignore[arg-type]


# -- edits


def carried_out(before: Mapping[str, bytes], actions: tuple[str, ...]) -> dict[str, bytes]:
    """Carry the actions out as the tools do; a `bash` must be a whole file's text, a removal or an encoded file."""
    files = dict(before)
    for action in actions:
        call = parse_call(action)
        if isinstance(call, Edit):
            done = apply_edit(files[call.path], call)
            assert isinstance(done, Applied), done
            files[call.path] = done.content
        elif action.startswith("bash rm "):
            del files[action.removeprefix("bash rm ")]
        else:
            files = {**files, "written": action.encode()}
    return files


LINES = st.lists(st.sampled_from(["a", "b", "    a", "", "=======", "<<<<<<<<"]), max_size=12)


@given(LINES, LINES, st.booleans(), st.booleans())
def test_edits_make_the_one_text_of_the_other(
    old: list[str], new: list[str], ends_before: bool, ends_after: bool
) -> None:
    before = {"f": "".join(f"{line}\n" for line in old).removesuffix("" if ends_before else "\n").encode()}
    after = {"f": "".join(f"{line}\n" for line in new).removesuffix("" if ends_after else "\n").encode()}
    actions = edits_between(before, after, {})
    result = carried_out(before, actions)
    if "written" not in result:
        assert result == after
    else:
        assert len(actions) == 1, "a file that cannot be edited so is written as a whole"
    assert bool(actions) == (before != after)


def test_most_changes_are_edits_of_few_lines() -> None:
    text = "".join(f"line {number}\n" for number in range(50))
    after = (
        text.replace("line 7\n", "line seven\n")
        .replace("line 30\n", "")
        .replace("line 40\n", "line 40\nnew\n")
    )
    actions = edits_between({"f.py": text.encode()}, {"f.py": after.encode()}, {})
    assert [action.count("\n") for action in actions] == [5, 4, 8]
    assert carried_out({"f.py": text.encode()}, actions) == {"f.py": after.encode()}


def test_files_that_are_no_text_are_written_in_code(tmp_path: Path) -> None:
    actions = edits_between({"a b": b"x", "c": b"y"}, {"c": b"y", "d/e": b"\0\xff"}, {"d/e": 0o755})
    assert actions[0] == "bash rm 'a b'"
    assert actions[1] == "bash mkdir -p d && base64 -d >d/e <<'END'\nAP8=\nEND\nchmod 755 d/e"


# -- splits


def test_splits_are_disjoint_and_independent_of_names_and_order() -> None:
    tasks = [task(f"t{number}") for number in range(20)]
    split = split_tasks(tasks)
    held = {each.instruction for each in split["held_out"]}
    assert len(held) == 4
    assert {each.name for each in split["train"]} == {
        each.name for each in tasks if each.instruction not in held
    }
    renamed = [replace(each, name=f"other {number}") for number, each in enumerate(reversed(tasks))]
    assert {each.instruction for each in split_tasks(renamed)["held_out"]} == held


def test_a_format_may_say_the_split() -> None:
    tasks = [task("a", split="train"), task("b", split="held_out"), task("c", split="train")]
    assert [each.name for each in split_tasks(tasks)["held_out"]] == ["b"]
    with pytest.raises(InvalidArgument, match="is in split 'test'; there are train, held_out"):
        split_tasks([task("a", split="test"), task("b")])


def test_a_single_task_is_both_splits() -> None:
    assert split_tasks([task("a")]) == {"train": (task("a"),), "held_out": (task("a"),)}


# -- the environment


def test_a_task_gets_its_own_box() -> None:
    tasks = [
        task("a", workdir="/w", env=(("B", "2"), ("A", "1")), agent_timeout_s=9000.0),
        task("b", build=Build(context=Path("/nowhere"))),
    ]
    spec = make_env_spec("mine", "3", tasks, images={tasks[1].build: "built:1"})
    source = spec.tasks(TaskSetParams())
    boxes = {}
    for split in source.splits:
        for index in range(source.count(split)):
            found = source.get(split, index)
            assert found.sandbox is not None
            boxes[found.payload] = found.sandbox
    assert (boxes["a"].image, boxes["a"].workdir, boxes["a"].env) == (
        "some:1",
        "/w",
        (("A", "1"), ("B", "2")),
    )
    assert boxes["a"].lifetime_s == 2 * (9000 + 120)
    assert (boxes["b"].image, boxes["b"].workdir) == ("built:1", "/workspace")
    assert (spec.key, spec.snapshots) == ("mine@3", True)
    with pytest.raises(UnknownName, match="unknown split 'test'"):
        source.count("test")
    with pytest.raises(InvalidArgument, match="no task train/7"):
        source.get("train", 7)


def test_the_agent_is_told_the_tools_it_has() -> None:
    def told(each: Task) -> str:
        return (
            make_env_spec("mine", "1", [each])
            .tasks(TaskSetParams(command_timeout_s=7))
            .get("train", 0)
            .instruction
        )

    plain = told(task("a"))
    assert plain.endswith("\n\nThe task:\ndo a")
    assert "at most 7 s each" in plain
    assert "run_tests" not in plain
    assert "\nrun_tests" in told(task("a", test_command="make test"))


def test_the_oracle_puts_the_solution_there_and_plays_it() -> None:
    files = (TaskFile("/oracle/a.sh", b"echo END\nEND\n", 0o755),)
    solved = task("a", solution=("bash sh /oracle/a.sh",), solution_files=files)
    assert solution_actions(solved) == (
        "bash mkdir -p /oracle && cat >/oracle/a.sh <<'END_'\necho END\nEND\nEND_\nchmod 755 /oracle/a.sh",
        "bash sh /oracle/a.sh",
    )
    spec = make_env_spec("mine", "1", [solved])
    oracle = spec.oracle(TaskSetParams(), spec.tasks(TaskSetParams()).get("train", 0))
    assert [oracle("") for _ in range(4)] == [*solution_actions(solved), "submit", "submit"]
    assert solution_actions(task("a", solution_files=files)) == ()
    spec = make_env_spec("mine", "1", [task("a")])
    with pytest.raises(Unimplemented, match="task 'a' of 'mine' comes without a solution"):
        spec.oracle(TaskSetParams(), spec.tasks(TaskSetParams()).get("train", 0))


def test_what_makes_no_environment_is_named() -> None:
    with pytest.raises(InvalidArgument, match="has no task"):
        make_env_spec("mine", "1", [])
    with pytest.raises(InvalidArgument, match="there are several a"):
        make_env_spec("mine", "1", [task("a"), task("a")])
    with pytest.raises(InvalidArgument, match="the image of task 'a' was not built"):
        make_env_spec("mine", "1", [task("a", build=Build(context=Path("/x")))])


# -- detection and images


def harbor(folder: Path, name: str, toml: str = "") -> None:
    for path, text in {
        "task.toml": toml,
        "instruction.md": "x",
        "environment/Dockerfile": "FROM scratch",
        "tests/test.sh": "#!/bin/sh\n",
    }.items():
        (folder / name / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / name / path).write_text(text)


def test_a_folder_of_tasks_is_read_in_order_and_tells_of_every_bad_one(tmp_path: Path) -> None:
    harbor(tmp_path / "tasks", "b")
    harbor(tmp_path / "tasks", "a")
    (tmp_path / "tasks" / "notes").mkdir()
    (tmp_path / "tasks" / "package.json").write_text("{}")
    (tmp_path / "tasks" / ".git").mkdir()
    assert [each.name for each in read_tasks(tmp_path)] == ["a", "b"]
    harbor(tmp_path / "tasks", "c", "bad = 1")
    harbor(tmp_path / "tasks", "d", "worse = 1")
    (tmp_path / "tasks" / "cut.json").write_text("[")
    with pytest.raises(InvalidArgument, match=r"(?s)c/task.toml: bad: .*cut.json.*d/task.toml: worse: "):
        read_tasks(tmp_path)
    found = read_each(tmp_path)
    assert [each.name for each in found] == ["a", "b", "c", "cut.json", "d"]
    assert [isinstance(each, Unread) for each in found] == [False, False, True, True, True]


@pytest.mark.parametrize("text", ["[", "[1]"])
def test_a_file_that_cannot_be_read_hides_no_task(tmp_path: Path, text: str) -> None:
    harbor(tmp_path / "tasks", "a")
    (tmp_path / "cut.json").write_text(text)
    cut, task = read_each(tmp_path)
    assert isinstance(cut, Unread)
    assert "cut.json" in cut.why
    assert task.name == "a"


@pytest.mark.parametrize("name", ["empty", "absent", "file.txt"])
def test_where_no_task_is_the_formats_are_told(tmp_path: Path, name: str) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "file.txt").write_text("")
    with pytest.raises(
        InvalidArgument, match=r"Expected a Harbor folder \(task.toml\), a Terminal-Bench folder"
    ):
        read_tasks(tmp_path / name)


def test_an_options_format_must_be_there(tmp_path: Path) -> None:
    harbor(tmp_path, "a")
    with pytest.raises(UnknownName, match="unknown option of harbor tasks 'repos'"):
        read_tasks(tmp_path / "a", repos="x")


def test_an_images_name_is_its_content(tmp_path: Path) -> None:
    for name in ("one", "two"):
        harbor(tmp_path / name, "Some Task")
    contexts = [tmp_path / name / "Some Task" / "environment" for name in ("one", "two")]
    first, second = (image_name(Build(context=context)) for context in contexts)
    assert first == second
    assert first.startswith("tasks/some-task-environment:")
    (contexts[1] / "Dockerfile").chmod(0o700)
    assert image_name(Build(context=contexts[1])) != first
    assert image_name(Build(context=contexts[0], args=(("A", "1"),))) != first
    with pytest.raises(InvalidArgument, match="no folder to build"):
        image_name(Build(context=tmp_path / "absent"))
