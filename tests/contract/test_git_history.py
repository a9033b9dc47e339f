"""Git repositories without their future, and the look for what is left of secrets; with git itself in real boxes."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest
from fences import why_not_isolated

from rock_env.backends.process.backend import ProcessBackend
from rock_env.errors import InfraError, InvalidArgument
from rock_env.grading import leaks, strip_history
from rock_env.grading.model import Build, Task, TaskFile, Verifier
from rock_env.sandbox import Sandbox
from rock_env.spec import SandboxSpec

SECRET = "return the_secret_way(to, solve, it)"
HISTORY = f"""
export GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a
mkdir project other; cd project; git init -q -b trunk; echo first > f; git add f; git commit -qm first; git tag v1
echo second > f; git add f; git commit -qm second; base=$(git rev-parse HEAD)
echo '{SECRET}' > g; git add g; git commit -qm third; git tag v2; git tag -a -m '{SECRET}' v3; git branch ahead
git notes add -m '{SECRET}'; echo '{SECRET} stashed' > f; git stash -q
git update-ref refs/pull/1/head HEAD; git update-ref refs/replace/$base HEAD; git update-ref -d refs/replace/$base
git pack-refs --all; git repack -adq
echo '{SECRET} loose' | git hash-object -w --stdin > /dev/null
git clone -q --bare . ../other/alternate.git
echo $PWD/../other/alternate.git/objects > .git/objects/info/alternates
git reset -q --hard $base; git checkout -q --detach; git branch -qD trunk; git remote add origin x
echo '{SECRET}' > .git/description; mkdir -p .git/modules/sub .git/worktrees/w
echo untracked > u; echo changed > f; rm -rf ../other; echo $base
"""


@pytest.fixture
def fenced() -> None:
    if why_not_isolated():
        pytest.skip(f"folders of the machine would be looked at: {why_not_isolated()}")


@pytest.fixture
async def box(fenced: None, tmp_path: Path) -> AsyncIterator[Sandbox]:
    backend = ProcessBackend(root=tmp_path, isolation="namespaces")
    yield await backend.create(SandboxSpec(), sandbox_id="box")
    await backend.close()


async def sh(box: Sandbox, script: str) -> str:
    done = await box.exec(["sh", "-c", script])
    assert done.ok, done
    return done.stdout.decode(errors="replace")


@pytest.fixture
async def base(box: Sandbox) -> str:
    return (await sh(box, HISTORY)).strip()


@pytest.mark.parametrize("single", [False, True])
async def test_nothing_of_the_future_is_left(box: Sandbox, base: str, single: bool) -> None:
    await strip_history(box, "project", base, single=single)
    log = await sh(
        box, "cd project; git log --format=%s; git branch --all; git tag; git stash list; git remote"
    )
    assert log == ("The project as it is\n* main\n" if single else "second\nfirst\n* main\n")
    assert await sh(box, "cd project; git status --porcelain; cat f u") == " M f\n?? u\nchanged\nuntracked\n"
    assert (await sh(box, "cd project; git fsck --full --unreachable --no-reflogs 2>&1")) == ""
    everything = "cd project; git cat-file --batch-all-objects --batch; cat $(find .git -type f)"
    assert SECRET not in await sh(box, f"({everything}) | tr -d '\\0'")
    assert "second" in await sh(box, "cd project; git show HEAD:f")
    assert (await sh(box, "cd project; git rev-parse HEAD")).strip() == base or single
    await sh(
        box, "cd project; git -c user.name=a -c user.email=a commit -qam mine; git gc -q; git fsck --full"
    )


async def test_what_is_no_repository_or_commit_is_refused_and_left_alone(box: Sandbox, base: str) -> None:
    for folder, commit in (("project", "f" * 40), ("project", "HEAD:f"), ("project", "-h"), (".", base)):
        with pytest.raises(InvalidArgument):
            await strip_history(box, folder, commit)
    assert "third" in await sh(box, "cd project; git log --format=%s ahead")
    await sh(box, "mv project/.git elsewhere; ln -s ../elsewhere project/.git")
    with pytest.raises(InvalidArgument, match=r"no.* git repository with a \.git folder"):
        await strip_history(box, "project", base)


async def test_a_damaged_repository_is_an_error(box: Sandbox, base: str) -> None:
    await sh(box, "cd project; for p in .git/objects/pack/*.pack; do chmod u+w $p; printf x > $p; done")
    with pytest.raises((InfraError, InvalidArgument)):
        await strip_history(box, "project", base)


TESTS = b"""
def test_the_first_secret_of_many():
    assert compute_the_answer(41) == 42


def test_the_second_secret_of_many():
    assert compute_the_answer(-1) == 0
"""
TASK = Task(
    name="t",
    instruction="Mend compute_the_answer.",
    build=Build(),
    verifier=Verifier(
        command=("true",), parser="pytest", files=(TaskFile("project/tests/test_it.py", TESTS),)
    ),
    solution=(f"edit f\n{SECRET}",),
)


async def test_secrets_in_files_and_git_objects_are_found(box: Sandbox, base: str) -> None:
    found = await leaks(box, TASK, roots=("/workspace", "/home", "/tmp"))
    assert {(leak.where, leak.secret) for leak in found} == {
        ("git objects of /workspace/project", "solution")
    }
    await strip_history(box, "project", base)
    assert await leaks(box, TASK, roots=("/workspace", "/home", "/tmp")) == ()
    await box.write_file("project/old/copy_of_tests.py", b"# odd\n" + TESTS)
    await box.write_file("/tmp/notes", f"first {SECRET}\n  {SECRET}\n".encode())
    found = await leaks(box, TASK, roots=("/workspace", "/home", "/tmp"))
    assert {(leak.where, leak.secret, leak.lines) for leak in found} == {
        ("/workspace/project/old/copy_of_tests.py", "project/tests/test_it.py", 4),
        ("/tmp/notes", "solution", 1),
    }


async def test_files_of_a_projects_own_repository_are_its_input(box: Sandbox, base: str) -> None:
    await strip_history(box, "project", base)
    await box.write_file("project/old/copy_of_tests.py", TESTS)
    await box.write_file("/tmp/notes", f"{SECRET}\n".encode())
    of_a_row = replace(TASK, workdir="/workspace/project", labels=(("repo", "a/b"),))
    found = {leak.where: leak.is_input for leak in await leaks(box, of_a_row, roots=("/workspace", "/tmp"))}
    assert found == {"/workspace/project/old/copy_of_tests.py": True, "/tmp/notes": False}
    found = {leak.where: leak.is_input for leak in await leaks(box, TASK, roots=("/workspace", "/tmp"))}
    assert found == {"/workspace/project/old/copy_of_tests.py": False, "/tmp/notes": False}


async def test_where_a_task_hides_its_answer_is_its_input(box: Sandbox, base: str) -> None:
    past = replace(TASK, instruction="A commit in /workspace/project was lost. Find it in the git history.")
    found = {leak.where: leak.is_input for leak in await leaks(box, past, roots=("/workspace",))}
    assert found == {"git objects of /workspace/project": True}
    await strip_history(box, "project", base)
    answer = TaskFile("/tests/expected.txt", b"the password of the archive is 7919-104729\n")
    verifier = replace(TASK.verifier, files=(answer,))
    await box.write_file("/tmp/vault", answer.content)
    for said, is_input in (("Recover the password of the archive.", True), ("Write a poem.", False)):
        hidden = replace(TASK, instruction=said, verifier=verifier)
        found = {leak.where: leak.is_input for leak in await leaks(box, hidden, roots=("/tmp",))}
        assert found == {"/tmp/vault": is_input}


async def test_what_the_agent_is_given_anyway_is_no_leak(box: Sandbox, base: str) -> None:
    await strip_history(box, "project", base)
    older = TESTS.replace(b"second", b"other")
    await box.write_file("project/tests/test_it.py", older)
    await sh(box, "cd project; git add -A; git -c user.name=a -c user.email=a commit -qm tests")
    assert await leaks(box, TASK, roots=("/workspace",)) == ()
    await box.write_file("project/tests/test_it.py", TESTS)
    (leak,) = await leaks(box, TASK, roots=("/workspace",))
    assert (leak.where, leak.secret) == ("project/tests/test_it.py",) * 2, (
        "it has the very tests in their place"
    )
