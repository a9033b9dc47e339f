"""Build contexts of repositories: a Dockerfile and a tree with one commit, no history, laid out once per content.

Used by the SWE-bench reader; the registry's client packs what lies here. The folder of a context is named by what is in
it, so what is there is never written again. The tree's `.git` is made anew: of the repository it came from it holds no other
object.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from rock_env.grading.model import Build
from rock_env.tasksets.mirror import Scratch, run_git

__all__ = ["Recipe", "default_contexts", "lay_out", "with_image"]

_DATE = "2020-01-01T00:00:00Z"
_AUTHOR = {
    "GIT_AUTHOR_NAME": "task",
    "GIT_AUTHOR_EMAIL": "task@localhost",
    "GIT_AUTHOR_DATE": _DATE,
    "GIT_COMMITTER_NAME": "task",
    "GIT_COMMITTER_EMAIL": "task@localhost",
    "GIT_COMMITTER_DATE": _DATE,
}
_VERSION = 1
"""Of the layout; another one makes other folders."""
_STRIP = (
    "git ls-files -z >/tmp/.rock-files && rm -rf .git && git init -q -b main && "
    "git add -f --pathspec-from-file=/tmp/.rock-files --pathspec-file-nul && rm /tmp/.rock-files && "
    "git -c user.name=task -c user.email=task@localhost commit -q -m 'The project as it is given'"
)


@dataclass(frozen=True, slots=True)
class Recipe:
    """How the image of an instance is made."""

    image: str
    workdir: str
    prepare: str = ""
    """Run in the tree of the environment's commit, before the project is there."""
    install: str = ""
    """Run in the project's folder."""


def default_contexts() -> Path:
    """Return where contexts lie if nobody says otherwise: the user's cache."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "rock" / "contexts"


def lay_out(
    recipe: Recipe, scratch: Scratch, *, name: str, tree_id: str, prepare_tree_id: str, contexts: Path
) -> Build:
    """Lay out the context of a tree, unless it is there, and return its build."""
    trees = [tree_id, prepare_tree_id if recipe.prepare else ""]
    lines = [f"FROM {recipe.image}", f"WORKDIR {recipe.workdir}"]
    if recipe.prepare:
        lines.append("COPY prepare/ /tmp/prepare/")
        lines.append(_run(f"cd /tmp/prepare && {{ {recipe.prepare}\n}} && cd / && rm -rf /tmp/prepare"))
    lines.append(f"COPY repo/ {recipe.workdir}/")
    if recipe.install:
        lines.append(_run(recipe.install))

    def fill(folder: Path) -> None:
        if recipe.prepare:
            scratch.lay_out(scratch.files(prepare_tree_id), folder / "prepare")
        scratch.lay_out(scratch.files(tree_id), folder / "repo")
        _commit(folder / "repo")

    return _made(name, lines, trees, contexts=contexts, fill=fill)


def with_image(recipe: Recipe, *, name: str, commit: str, contexts: Path) -> Build:
    """Return the build upon an image that holds the repository: at the commit, and without its history."""
    at_commit = f"git checkout -q -f {commit} && {_STRIP}"
    lines = [f"FROM {recipe.image}", f"WORKDIR {recipe.workdir}", _run(at_commit)]
    if recipe.install:
        lines.append(_run(recipe.install))
    return _made(name, lines, [], contexts=contexts, fill=lambda _: None)


def _run(script: str) -> str:
    return f"RUN {json.dumps(['sh', '-ec', script])}"


def _made(
    name: str, lines: list[str], trees: list[str], *, contexts: Path, fill: Callable[[Path], None]
) -> Build:
    text = "\n".join(lines) + "\n"
    digest = hashlib.sha256(json.dumps([_VERSION, text, trees]).encode()).hexdigest()[:16]
    done = contexts / f"{name}-{digest}"
    if not done.is_dir():
        contexts.mkdir(parents=True, exist_ok=True)
        part = Path(tempfile.mkdtemp(prefix=".part-", dir=contexts))
        try:
            fill(part)
            (part / "Dockerfile").write_text(text)
            part.rename(done)
        except OSError:
            if not done.is_dir():  # else another process was faster
                raise
        finally:
            shutil.rmtree(part, ignore_errors=True)
    return Build(context=done)


def _commit(folder: Path) -> None:
    """Make the folder a repository of one commit, the same bytes on every machine."""
    folder.mkdir(exist_ok=True)
    run_git("init", "-q", "--initial-branch=main", "--template=", cwd=folder)
    run_git("-c", "core.autocrlf=false", "add", "--all", "--force", ".", cwd=folder)
    quiet = ["-c", "core.logAllRefUpdates=false", "-c", "gc.auto=0"]
    words = ["commit", "-q", "--allow-empty", "--no-verify", "-m", "The project as it is given"]
    run_git(*quiet, *words, cwd=folder, env=_AUTHOR)
    # The index holds times and inodes of this machine; this one holds none, and git fills them in where it is used.
    (folder / ".git" / "index").unlink()
    run_git("read-tree", "HEAD", cwd=folder)
    (folder / ".git" / "COMMIT_EDITMSG").unlink(missing_ok=True)
