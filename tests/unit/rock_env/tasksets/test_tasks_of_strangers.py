"""A task's folder made to harm its reader: links to the host's files, pipes, texts that expand, numbers without bounds."""

from __future__ import annotations

import os
import tarfile
from pathlib import Path

import pytest

from agent_runtime.agents.spec import read_spec
from rock_env.client.build_context import packed
from rock_env.errors import InvalidArgument
from rock_env.foreign.yaml_text import load_yaml
from rock_env.tasksets.detect import read_tasks
from rock_env.tasksets.mirror import Mirror, run_git

HARBOR = {
    "task.toml": "[environment]\n",
    "instruction.md": "Do it.",
    "environment/Dockerfile": "FROM some:1\n",
    "environment/.dockerignore": "nothing\n",
    "tests/test.sh": "#!/bin/sh\n",
    "tests/more/data": "1",
    "solution/solve.sh": "true\n",
}
BENCH = {
    "task.yaml": "instruction: Do it.\n",
    "docker-compose.yaml": "services: {client: {build: {context: box, dockerfile: Boxfile}}}\n",
    "box/Boxfile": "FROM some:1\n",
    "run-tests.sh": "true\n",
    "tests/test_it.py": "",
    "solution.yaml": "[{command: ls}]\n",
}
LAUGHS = ["a0: &a0 [lol]", *(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 10))]
MERGES = [
    "a0: &a0 {k: lol}",
    *(f"a{n}: &a{n} {{<<: [{', '.join([f'*a{n - 1}'] * 9)}]}}" for n in range(1, 10)),
]
BOMBS = ["\n".join(LAUGHS), "\n".join(MERGES), "a: &a [*a]", f"a: &a {'x' * 99_999}\nb: [{'*a, ' * 99}]"]


def laid_out(folder: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


def moved(folder: Path, name: str, to: Path) -> None:
    """Move what stands at `name` to `to`, and leave a link."""
    (folder / name).rename(to)
    (folder / name).symlink_to(to)


def contexts_of(folder: Path) -> None:
    for task in read_tasks(folder):
        packed(task.build.context or folder, dockerfile=task.build.dockerfile).close()


LINKED = [(HARBOR, name) for name in (*HARBOR, "environment", "tests", "solution", "tests/more/data")] + [
    (BENCH, name) for name in (*BENCH, "tests", "box")
]


@pytest.mark.parametrize(("files", "name"), LINKED)
def test_nothing_is_read_through_a_link_out_of_the_folder(
    tmp_path: Path, files: dict[str, str], name: str
) -> None:
    folder = laid_out(tmp_path / "task", files)
    moved(folder, name, tmp_path / "secret")
    with pytest.raises(InvalidArgument, match="leads out of the"):
        contexts_of(folder)


@pytest.mark.parametrize(("files", "name"), LINKED)
def test_links_within_the_folder_are_followed(tmp_path: Path, files: dict[str, str], name: str) -> None:
    expected = read_tasks(laid_out(tmp_path / "plain" / "task", files))[0]
    folder = laid_out(tmp_path / "task", files)
    moved(folder, name, folder / "kept")
    read = read_tasks(folder)[0]
    assert (read.instruction, read.verifier) == (expected.instruction, expected.verifier)


def test_a_link_in_a_build_context_is_packed_as_a_link(tmp_path: Path) -> None:
    folder = laid_out(tmp_path, HARBOR)
    (folder / "environment" / "python").symlink_to("/usr/bin/python3")
    task = read_tasks(folder)[0]
    with packed(folder / "environment") as file, tarfile.open(fileobj=file) as tar:
        assert tar.getmember("python").issym()
    assert task.build.context == folder / "environment"


def test_a_folder_of_tasks_has_none_outside(tmp_path: Path) -> None:
    laid_out(tmp_path / "set" / "own", HARBOR)
    laid_out(tmp_path / "another", HARBOR)
    (tmp_path / "set" / "linked").symlink_to(tmp_path / "another")
    with pytest.raises(InvalidArgument, match="linked is a link that leads out of the folder"):
        read_tasks(tmp_path / "set")


def test_a_folder_that_the_user_names_may_be_a_link(tmp_path: Path) -> None:
    laid_out(tmp_path / "task", HARBOR)
    (tmp_path / "link").symlink_to("task")
    assert read_tasks(tmp_path / "link")[0].instruction == "Do it."


@pytest.mark.parametrize("name", ["instruction.md", "tests/more/data"])
def test_a_pipe_is_no_file_of_a_task(tmp_path: Path, name: str) -> None:
    folder = laid_out(tmp_path, HARBOR)
    (folder / name).unlink()
    os.mkfifo(folder / name)
    with pytest.raises(InvalidArgument, match="no regular file"):
        read_tasks(folder)


@pytest.mark.parametrize("text", BOMBS, ids=["lists", "merges", "itself", "texts"])
def test_aliases_are_counted_as_if_written_out(tmp_path: Path, text: str) -> None:
    with pytest.raises(ValueError, match=r"written out|within its own"):
        load_yaml(text)
    with pytest.raises(InvalidArgument, match="no YAML"):
        read_spec(text, source="./a.yaml")
    with pytest.raises(InvalidArgument, match="no YAML"):
        read_tasks(laid_out(tmp_path, {**BENCH, "task.yaml": text}))


def test_a_few_aliases_and_merges_are_taken() -> None:
    text = "base: &base {a: 1, b: &b [x, y]}\nmore: {<<: *base, c: *b}\n"
    assert load_yaml(text)["more"] == {"a": 1, "b": ["x", "y"], "c": ["x", "y"]}


@pytest.mark.parametrize(
    "line",
    [
        "memory_mb = 9223372036854775808",
        f"memory_mb = {'9' * 400}",
        "storage_mb = inf",
        "gpus = nan",
        "cpus = 1e300",
        f"cpus = {'9' * 400}",
        f"build_timeout_sec = {'9' * 400}",
        f"memory = '{'9' * 400}G'",
        "memory = '9999999999999G'",
        "memory = '٣G'",
        "healthcheck = { command = 'true', start_interval_sec = 5e-324, start_period_sec = 9.0 }",
    ],
)
def test_numbers_of_a_harbor_task_have_bounds(tmp_path: Path, line: str) -> None:
    folder = laid_out(tmp_path, {**HARBOR, "task.toml": f"[environment]\n{line}\n"})
    with pytest.raises(InvalidArgument, match="expected"):
        read_tasks(folder)


@pytest.mark.parametrize(
    "line",
    ["cpus: .nan", "cpus: -1", f"cpus: {'9' * 400}", f"mem_limit: {'9' * 400}g", "mem_limit: 9999999999999g"],
)
def test_numbers_of_a_compose_file_have_bounds(tmp_path: Path, line: str) -> None:
    text = f"services:\n  client:\n    build: box\n    {line}\n"
    with pytest.raises(InvalidArgument, match="expected a"):
        read_tasks(laid_out(tmp_path, {**BENCH, "docker-compose.yaml": text}))


def tree_of(repo: Path, *entries: tuple[str, str, str]) -> str:
    """Write a tree that git itself would not make, of (mode, name, object)."""
    content = b"".join(f"{mode} {name}\0".encode() + bytes.fromhex(held) for mode, name, held in entries)
    words = ("hash-object", "-t", "tree", "--literally", "-w", "--stdin")
    return run_git(*words, cwd=repo, stdin=content).decode().strip()


@pytest.mark.parametrize("kind", ["link", "up", "git"])
def test_a_tree_of_a_repository_stays_in_its_folder(tmp_path: Path, kind: str) -> None:
    (repo := tmp_path / "repo").mkdir()
    (elsewhere := tmp_path / "elsewhere").mkdir()
    run_git("init", "-q", cwd=repo)
    link, blob = (
        run_git("hash-object", "-w", "--stdin", cwd=repo, stdin=text).decode().strip()
        for text in (str(elsewhere).encode(), b"theirs")
    )
    inner = tree_of(repo, ("100644", "planted", blob))
    entries = {
        "link": [("120000", "a", link), ("40000", "a", inner)],
        "up": [("40000", "..", inner)],
        "git": [("40000", ".git", inner)],
    }[kind]
    with Mirror(repo).scratch() as scratch:
        tree = scratch.files(tree_of(repo, *entries))
        with pytest.raises(InvalidArgument, match=r"leads out|no work tree"):
            scratch.lay_out(tree, tmp_path / "out" / "repo")
    assert not list(tmp_path.rglob("planted"))
