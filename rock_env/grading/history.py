"""A repository without its future: nothing of git's is left that does not belong to the commit a task starts from.

Called where a task's box is prepared, before an agent is in it. Deleting refs is not enough (reflogs, packs, stashes,
alternates and dangling objects keep what they pointed to), so a new repository is made of the wanted objects alone.
"""

from __future__ import annotations

from rock_env.errors import InfraError, InvalidArgument
from rock_env.sandbox import Sandbox

__all__ = ["GIT_ENV", "strip_history"]

_TIMEOUT_S = 300.0
GIT_ENV = {
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_CONFIG_COUNT": "1",
    "GIT_CONFIG_KEY_0": "safe.directory",
    "GIT_CONFIG_VALUE_0": "*",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_NO_REPLACE_OBJECTS": "1",
    "LC_ALL": "C",
}
"""Git as it is, without anybody's settings, in folders of whatever owner."""
_NOT_A_REPOSITORY, _NO_SUCH_COMMIT, _NOT_CLEAN = 31, 32, 33
_SCRIPT = r"""
set -eu
base=$1 single=$2
test -d .git && test ! -L .git || exit 31
base=$(git rev-parse -q --verify "$base^{commit}") || exit 32
if [ "$single" = yes ]; then
  export GIT_AUTHOR_NAME=task GIT_AUTHOR_EMAIL=task GIT_AUTHOR_DATE='@0 +0000'
  export GIT_COMMITTER_NAME=task GIT_COMMITTER_EMAIL=task GIT_COMMITTER_DATE='@0 +0000'
  base=$(git commit-tree -m 'The project as it is' "$base^{tree}")
fi
new=.git-$3
rm -rf "$new"
git init -q --bare --template= "$new"
git rev-list --objects "$base" > "$new/wanted"
cut -d' ' -f1 "$new/wanted" | git pack-objects -q "$new/objects/pack/pack" > /dev/null
if [ -f .git/shallow ]; then
  grep -F -f .git/shallow "$new/wanted" | cut -d' ' -f1 > "$new/shallow"
  test -s "$new/shallow" || rm "$new/shallow"
fi
rm "$new/wanted"
rm -rf .git
mv "$new" .git
git config core.bare false
printf 'ref: refs/heads/main\n' > .git/HEAD
git update-ref --no-deref refs/heads/main "$base"
rm -rf .git/logs
git read-tree HEAD
git update-index -q --refresh > /dev/null || true
test -z "$(git fsck --full --no-progress --unreachable --no-reflogs 2>&1)" || exit 33
all=$(git cat-file --batch-all-objects --batch-check='%(objectname)' | sort -u)
reached=$(git rev-list --all --objects | cut -d' ' -f1 | sort -u)
test "$all" = "$reached" || exit 33
test "$(git rev-list --all | head -n1)" = "$base" || exit 33
"""
_WHY = {
    _NOT_A_REPOSITORY: "it is not a git repository with a .git folder of its own",
    _NO_SUCH_COMMIT: "it has no such commit",
    _NOT_CLEAN: "what is left is not sound, or more than the commit needs",
}


async def strip_history(box: Sandbox, folder: str, base_commit: str, *, single: bool = False) -> None:
    """Leave of the repository in `folder` the commit, what came before it (`single`: not even that), and nothing else.

    Branches, tags, remotes, reflogs, stashes, notes, hooks, settings and submodules' repositories go; the branch is `main`.
    Files of the work tree are not touched. Raise `InvalidArgument` for a folder or commit there is not, and `InfraError`
    if what is left is not exactly that, as `git fsck` and a comparison of all objects with the reachable ones tell.
    """
    if base_commit.startswith("-"):
        raise InvalidArgument(f"{base_commit!r} is no commit")
    argv = ["sh", "-c", _SCRIPT, "sh", base_commit, "yes" if single else "no", "stripped"]
    result = await box.exec(argv, cwd=folder, env=GIT_ENV, timeout_s=_TIMEOUT_S)
    if result.ok:
        return
    what = f"cannot strip the git history of {folder} to {base_commit}"
    why = _WHY.get(result.exit_code or 0, "")
    if result.exit_code in (_NOT_A_REPOSITORY, _NO_SUCH_COMMIT):
        raise InvalidArgument(f"{what}: {why}")
    said = result.infra_error or result.stderr.decode(errors="replace").strip()[-300:]
    raise InfraError(f"{what}: {why or said or f'exit code {result.exit_code}'}. Does the image have git?")
