"""A git repository of a task: the script that makes it, commit by commit, and checks of what became of it."""

from __future__ import annotations

import posixpath
import shlex

from sandboxes.terminal.checks import Check, git_changed, git_says
from sandboxes.terminal.words import Draw

__all__ = ["Repository", "begin"]

_BEGIN = 1_709_629_200
"""2024-03-05 09:00 UTC; each commit is an hour after the one before."""
_COMMIT = """\
commit() {
  git add -A
  export GIT_AUTHOR_NAME=$1 GIT_AUTHOR_EMAIL=$1@example.com GIT_COMMITTER_NAME=$1 GIT_COMMITTER_EMAIL=$1@example.com
  clock=$((clock + 3600))
  GIT_AUTHOR_DATE="$clock +0000" GIT_COMMITTER_DATE="$clock +0000" git commit -q -m "$2"
}
"""


class Repository:
    """The script that makes a repository, commit by commit, each of which has its author and its own fixed time."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._lines = [f"git init -q -b main {name}; cd {name}", f"{_COMMIT}clock={_BEGIN}"]
        self._commits = 0

    @property
    def script(self) -> str:
        """Return what makes the repository, in the task's folder."""
        return "\n".join(self._lines)

    def write(self, path: str, text: str) -> None:
        """Write a file into the work tree, without committing it."""
        self._lines.append(f"mkdir -p ./{posixpath.dirname(path)}; printf %s {shlex.quote(text)} > {path}")

    def run(self, command: str) -> None:
        """Run a shell command in the repository."""
        self._lines.append(command)

    def commit(self, author: str, message: str, files: dict[str, str] | None = None) -> None:
        """Write files, and commit the whole work tree."""
        for path, text in (files or {}).items():
            self.write(path, text)
        self.run(f"commit {author} {shlex.quote(message)}")
        self._commits += 1

    def times(self, author: str) -> str:
        """Return what `log --format='%an %ct'` shows of all commits made, if `author` made all, one after the other."""
        return "\n".join(f"{author} {_BEGIN + 3600 * number}" for number in range(self._commits, 0, -1))

    def says(self, name: str, words: str, expected: str, *, status: int = 0, guard: bool = False) -> Check:
        """Expect a git command, given as words, to print this."""
        return git_says(name, words.split(), expected, folder=self.name, status=status, guard=guard)

    def log(self, branch: str, subjects: list[str], *, guard: bool = False) -> Check:
        """Expect these subjects on a branch, latest first."""
        return self.says(f"log of {branch}", f"log --format=%s {branch} --", "\n".join(subjects), guard=guard)

    def clean(self, *, guard: bool = True) -> Check:
        """Expect nothing uncommitted."""
        return git_changed("clean work tree", lambda changed: not changed, folder=self.name, guard=guard)


def begin(draw: Draw, commits: int = 3) -> tuple[Repository, str, list[str]]:
    """Return a repository with some commits on main, an author of them, and their subjects, latest first."""
    repository, author = Repository(draw.name("service")), draw.name("person")
    subjects: list[str] = []
    for thing in draw.names("thing", commits):
        subjects.insert(0, f"Describe the {thing}")
        repository.commit(author, subjects[0], {f"docs/{thing}.txt": f"The {thing}: {draw.code(thing)}\n"})
    return repository, author, subjects
