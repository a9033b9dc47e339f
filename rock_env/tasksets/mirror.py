"""A local copy of a repository: files at a commit, and what a patch makes of them. Read only: nothing is written into it.

Used by the readers of SWE-bench and SWE-smith instances. Runs `git` with no settings of the user's and no hooks; what a
patch makes lies in a temporary folder of objects beside the copy's own.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from rock_env.errors import InvalidArgument
from rock_env.foreign.folder import place_inside

__all__ = ["Blob", "Mirror", "Tree", "find_mirror", "run_git"]

_TIMEOUT_S = 300.0
_QUIET = {
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_NO_REPLACE_OBJECTS": "1",
    "GIT_OPTIONAL_LOCKS": "0",
    "LC_ALL": "C",
}


@dataclass(frozen=True, slots=True)
class Blob:
    """One file of a tree: its git mode (`100644`, `100755`, `120000`) and object."""

    mode: str
    object_id: str
    size: int


Tree = Mapping[str, Blob]
"""Files by path."""


def run_git(
    *words: str, cwd: Path | None = None, env: Mapping[str, str] | None = None, stdin: bytes = b""
) -> bytes:
    """Run git and return its output. Raise `InvalidArgument` with what it said."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    try:
        done = subprocess.run(
            ["git", "-c", "safe.directory=*", "-c", "core.hooksPath=/dev/null", *words],
            cwd=cwd,
            env={**kept, **_QUIET, **(env or {})},
            input=stdin,
            capture_output=True,
            check=False,
            timeout=_TIMEOUT_S,
        )
    except FileNotFoundError as error:
        raise InvalidArgument("git is not installed; reading repositories needs it.") from error
    except subprocess.TimeoutExpired as error:
        raise InvalidArgument(f"git {words[0]} took longer than {_TIMEOUT_S:g} s.") from error
    if done.returncode:
        said = done.stderr.decode(errors="replace").strip()
        raise InvalidArgument(f"git {words[0]} failed: {said or f'exit code {done.returncode}'}")
    return done.stdout


def find_mirror(repos: Path, name: str) -> Mirror:
    """Return the copy of repository `owner/name` below `repos`. Raise `InvalidArgument` naming the places looked at."""
    flat = name.replace("/", "__")
    places = [repos / part for part in (flat, f"{flat}.git", name, f"{name}.git")]
    for place in places:
        if (place / "HEAD").is_file() or (place / ".git").exists():
            return Mirror(place)
    looked = ", ".join(str(place) for place in places)
    raise InvalidArgument(
        f"no copy of the repository {name!r}: looked for {looked}. Clone it there, bare or not."
    )


class Mirror:
    """The copy at `path`, bare or with a work tree."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._git_dir = run_git("rev-parse", "--absolute-git-dir", cwd=path).decode().strip()
        objects = run_git("rev-parse", "--git-path", "objects", cwd=path).decode().strip()
        self._objects = str((path / objects).resolve())

    def commit(self, name: str) -> str:
        """Return the full id of a commit. Raise `InvalidArgument` if the copy lacks it."""
        try:
            return self._git("rev-parse", "--verify", "--quiet", f"{name}^{{commit}}").decode().strip()
        except InvalidArgument as error:
            raise InvalidArgument(f"{self.path} has no commit {name!r}. Fetch it there.") from error

    @contextmanager
    def scratch(self) -> Iterator[Scratch]:
        """Lend a place where patches are applied."""
        with tempfile.TemporaryDirectory(prefix="rock-patch-") as folder:
            (Path(folder) / "objects").mkdir()
            yield Scratch(
                self,
                Path(folder),
                {
                    "GIT_DIR": self._git_dir,
                    "GIT_INDEX_FILE": f"{folder}/index",
                    "GIT_OBJECT_DIRECTORY": f"{folder}/objects",
                    "GIT_ALTERNATE_OBJECT_DIRECTORIES": self._objects,
                },
            )

    def _git(self, *words: str) -> bytes:
        return run_git(*words, env={"GIT_DIR": self._git_dir})


class Scratch:
    """Trees of a mirror and of patches upon them, as long as `Mirror.scratch` lasts."""

    def __init__(self, mirror: Mirror, folder: Path, env: Mapping[str, str]) -> None:
        self._mirror = mirror
        self._folder = folder
        self._env = env

    def tree_id(self, commit: str) -> str:
        """Return the tree of a commit."""
        return self._git("rev-parse", "--verify", f"{commit}^{{tree}}").decode().strip()

    def patched(self, tree_id: str, patch: str, *, what: str, reverse: bool = False) -> str:
        """Return the tree that a patch makes of a tree. Raise `InvalidArgument`, naming `what`, if it does not apply."""
        self._git("read-tree", tree_id)
        if patch.strip():
            words = ["apply", "--cached", "--whitespace=nowarn", *(["--reverse"] if reverse else []), "-"]
            try:
                self._git(*words, stdin=(patch if patch.endswith("\n") else patch + "\n").encode())
            except InvalidArgument as error:
                raise InvalidArgument(
                    f"{what} does not apply to {tree_id[:12]} of {self._mirror.path}: {error}"
                ) from error
        return self._git("write-tree").decode().strip()

    def without(self, tree_id: str, paths: list[str]) -> str:
        """Return the tree without some files."""
        self._git("read-tree", tree_id)
        if paths:
            listed = "".join(f"0 {'0' * 40}\t{path}\0" for path in paths)
            self._git("update-index", "-z", "--index-info", stdin=listed.encode())
        return self._git("write-tree").decode().strip()

    def files(self, tree_id: str) -> Tree:
        """Return the files of a tree. Raise `InvalidArgument` for a submodule, which a copy does not hold."""
        found = {}
        for line in (
            self._git("ls-tree", "-r", "-l", "-z", tree_id).decode(errors="surrogateescape").split("\0")[:-1]
        ):
            head, path = line.split("\t", 1)
            mode, kind, object_id, size = head.split()
            if kind != "blob":
                raise InvalidArgument(
                    f"{self._mirror.path} has the submodule {path!r} at {tree_id[:12]}, whose files it does not hold."
                )
            found[path] = Blob(mode, object_id, int(size))
        return found

    def contents(self, object_ids: list[str]) -> list[bytes]:
        """Return the contents of blobs, in order."""
        output = self._git("cat-file", "--batch", stdin="".join(f"{name}\n" for name in object_ids).encode())
        found, at = [], 0
        for _ in object_ids:
            end = output.index(b"\n", at)
            size = int(output[at:end].split()[2])
            found.append(output[end + 1 : end + 1 + size])
            at = end + 2 + size
        return found

    def lay_out(self, tree: Tree, folder: Path) -> None:
        """Write the files of a tree below a folder. Raise `InvalidArgument` for one that would lie elsewhere."""
        paths = list(tree)
        for path, content in zip(paths, self.contents([tree[path].object_id for path in paths]), strict=True):
            target = folder / path
            if not {".git", ".."}.isdisjoint(path.lower().split("/")):
                raise InvalidArgument(f"{self._mirror.path} holds {path!r}, which no work tree has.")
            place_inside(folder, target)
            target.parent.mkdir(parents=True, exist_ok=True)
            if tree[path].mode == "120000":
                target.symlink_to(content.decode(errors="surrogateescape"))
            else:
                target.write_bytes(content)
                target.chmod(0o755 if tree[path].mode == "100755" else 0o644)

    def _git(self, *words: str, stdin: bytes = b"") -> bytes:
        return run_git(*words, env=self._env, stdin=stdin, cwd=self._folder)
