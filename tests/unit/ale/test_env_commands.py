"""What `ale env` does without a server: a new folder, names, and when an action typed by hand is complete."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ale.env.new import new_command
from ale.env.play import is_complete
from ale.env.registering import RegisterCommand, register_command, remove_command
from rock_env.errors import InvalidArgument, UnknownName
from rock_env.grading.model import Build, Task, Verifier
from rock_env.tasksets.detect import read_tasks
from rock_env.tasksets.registered import Registration, store


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ALE_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


def command(path: Path, name: str | None = None, **fields: Any) -> RegisterCommand:
    return replace(RegisterCommand(path, name, {}, check=False, tasks=1, skip_bad=False, rock=""), **fields)


def test_a_new_folder_is_a_whole_task(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "my_env"
    new_command(folder)
    assert f"ale env register {folder}" in capsys.readouterr().out
    (task,) = read_tasks(folder)
    assert (task.name, task.build.context) == ("my_env", folder / "environment")
    assert task.solution
    assert (folder / "tests" / "test.sh").stat().st_mode & 0o111
    readme = (folder / "README.md").read_text(encoding="utf-8")
    for path in folder.rglob("*"):
        told = path.name == "README.md" or path.is_dir() or path.name == "visits.log"
        assert told or f"`{path.relative_to(folder)}`" in readme, "each file says what to change in it"


def test_a_new_folder_overwrites_nothing(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("mine")
    for place in (tmp_path, tmp_path / "mine.txt"):
        with pytest.raises(InvalidArgument, match="not empty"):
            new_command(place)
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]


@pytest.mark.parametrize(
    ("path", "said"),
    [("absent", "does not exist"), ("empty", "Expected a Harbor folder"), ("Bad Name!", "does not exist")],
)
def test_what_is_no_task_says_what_was_looked_for(tmp_path: Path, path: str, said: str) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(InvalidArgument, match=said):
        register_command(command(tmp_path / path))


def test_every_task_that_is_left_out_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tasks = tmp_path / "tasks"
    for name, text in {
        "harbor/task.toml": "bad = 1\n",
        ".old/task.toml": "bad = 1\n",
        "rows.json": '[{"instance_id": "a"}, {"instance_id": "b", "repo": "x/y", "FAIL_TO_PASS": []}]',
        "package.json": "{}",
    }.items():
        (tasks / name).parent.mkdir(parents=True, exist_ok=True)
        (tasks / name).write_text(text)
    options = {"hints": True, "variables": {"A": "1"}}  # of the file, and of the folder
    with pytest.raises(InvalidArgument, match="holds no task that can be read"):
        register_command(command(tmp_path, "mine", skip_bad=True, options=options))
    said = [line.partition(": ")[0] for line in capsys.readouterr().err.splitlines()]
    told = [line for line in said if line.startswith("left out ")]
    assert told == ["left out harbor", "left out rows.json row 1 (a)", "left out rows.json row 2 (b)"]
    with pytest.raises(UnknownName, match="hint"):
        register_command(command(tmp_path, "mine", skip_bad=True, options={"hint": True}))


def test_a_name_that_is_taken_is_refused_before_anything_is_read(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgument, match="installed environment is called 'swe'"):
        register_command(command(tmp_path / "absent", "swe"))
    task = Task("one", "Do it.", Build(image="busybox"), Verifier(("true",), "exit_code"))
    record = Registration(
        name="mine", digest="d" * 64, source="/elsewhere", registered_at=0.0, tasks=1, images=("busybox",)
    )
    store(record, [task])
    with pytest.raises(InvalidArgument, match="registered already, from /elsewhere"):
        register_command(command(tmp_path / "absent", "mine"))


def test_only_what_was_registered_is_removed() -> None:
    with pytest.raises(InvalidArgument, match="was installed"):
        remove_command("sokoban")
    with pytest.raises(UnknownName, match="nowhere"):
        remove_command("nowhere")


@pytest.mark.parametrize(
    ("lines", "ends"),
    [
        (["ls -la"], [True]),
        ([""], [True]),
        (["cat > a <<EOF", "x", "EOF"], [False, False, True]),
        (["cat > a <<-'EOF'", "\tEOF"], [False, True]),
        (["cat <<A <<B", "A", "A", "B"], [False, False, False, True]),
        (["echo $((1 << 2))"], [True]),
        (["cat <<< word"], [True]),
        (["echo a \\", "b"], [False, True]),
        (["edit a.py", "<<<<<<<", "x = 1", "=======", "x = 2", ">>>>>>>"], [False] * 5 + [True]),
        (["edit a", "<<<<<<<<", ">>>>>>>", "========", "y", ">>>>>>>>"], [False] * 5 + [True]),
        (["```bash", "ls", "pwd", "```"], [False, False, False, True]),
        (["````", "```", "````"], [False, False, True]),
        (["edits are fun"], [True]),
    ],
)
def test_an_action_goes_on_until_all_it_opened_is_closed(lines: list[str], ends: list[bool]) -> None:
    found = [is_complete("\n".join(lines[: count + 1])) for count in range(len(lines))]
    assert found == ends
