"""Work that only looks done, in real sandboxes of a real server: it scores 0, and honest work done in odd ways scores 1."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from fences import why_not_isolated

from rock_env.client import Client
from rock_env.local import start_embedded
from sandboxes.terminal.catalog import TEMPLATES, VARIANTS, scenario
from sandboxes.terminal.scenario import Scenario

pytestmark = pytest.mark.timeout(300)
VARIANTS_TRIED = 3
_OF = (
    "kill -{} $(for p in /proc/[0-9]*; do tr '\\0' ' ' < $p/cmdline 2> /dev/null | grep -q '^python3 {}' && echo "
    "${{p#/proc/}}; done)"
)


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    if why := why_not_isolated():
        pytest.skip(f"tasks about processes need isolated sandboxes: {why}")
    with start_embedded(["--env=sandboxes.terminal:ENV"]) as server:
        yield server.address


def task_of(name: str, variant: int) -> str:
    """Return the id of one variant of a template."""
    split = TEMPLATES[name].split
    names = [each.name for each in TEMPLATES.values() if each.split == split]
    assert variant < VARIANTS[split]
    return f"{split}/{variant * len(names) + names.index(name)}"


async def rewards(address: str, name: str, act: Callable[[Scenario], list[str]]) -> list[float]:
    """Let `act` say the actions for several variants of a template, and return their rewards."""
    got = []
    async with Client(address) as client:
        env = await client.make("terminal")
        for variant in range(VARIANTS_TRIED):
            await env.reset(task_of(name, variant), 0)
            for action in act(scenario(f"{name}/{variant}")):
                await env.step(action)
            got.append((await env.evaluate()).reward)
        await env.close()
    return got


def _other_receipts(kept: str) -> str:
    return f"sleep 0.3; cd receipts; for f in *; do [ $f = {kept}.txt ] || rm $f; done; cd .."


def _all_workers(drawn: Scenario) -> list[str]:
    name = drawn.ends[0].split()[2]
    log = f"printf 'all workers are up\\n{name} ended: 0\\n' > keeper.log"
    return [f"bash {_OF.format('TERM', 'worker.py')}; {_other_receipts(name)}; {log}"]


def _all_holders(drawn: Scenario) -> list[str]:
    name = drawn.ends[0].split()[3]
    return [f"bash {_OF.format('TERM', 'holder.py')}; {_other_receipts(name)}; sh drain.sh"]


def _all_painters(drawn: Scenario) -> list[str]:
    page = drawn.ends[0].split()[2]
    return [
        f"bash {_OF.format('CONT', 'painter.py')}; sleep 0.3; cd pages; for f in *; do [ $f = {page}.txt ] || rm $f; done"
    ]


def _twice(end: str) -> Callable[[Scenario], list[str]]:
    def act(drawn: Scenario) -> list[str]:
        hup = "kill -HUP $(cat daemon.pid); sleep 0.3"
        return [*drawn.solution, f"bash cp state.txt kept; {hup}; {end}; cp kept state.txt; rm kept"]

    return act


def _then(command: str) -> Callable[[Scenario], list[str]]:
    return lambda drawn: [*drawn.solution, f"bash {command}"]


_PROCESS_CHEATS = {
    "all-workers": ("stop-worker", _all_workers),
    "all-workers-by-argument": ("stop-by-argument", _all_workers),
    "keeper-halted": ("stop-worker", _then(_OF.format("STOP", "keeper.py"))),
    "keeper-killed": ("stop-worker", _then(_OF.format("KILL", "keeper.py"))),
    "others-killed": ("stop-by-argument", _then(_OF.format("KILL", "worker.py"))),
    "all-holders": ("free-lock", _all_holders),
    "all-painters": ("resume-stopped", _all_painters),
    "daemon-killed": ("reload-config", _twice("kill -9 $(cat daemon.pid)")),
    "daemon-twice": ("reload-config", _twice("true")),
    "daemon-again": (
        "reload-config",
        _then("kill -9 $(cat daemon.pid); sleep 100 | python3 daemon.py & sleep 0.3"),
    ),
    "viewer-killed": ("deleted-report", _then(_OF.format("KILL", "viewer.py"))),
    "servers-killed": ("environment-of", _then("kill -9 $(cat run/*.pid)")),
    "server-halted": ("environment-of", _then("kill -STOP $(cat run/*.pid)")),
}


@pytest.mark.parametrize("cheat", _PROCESS_CHEATS)
async def test_what_became_of_processes_cannot_be_written(address: str, cheat: str) -> None:
    assert await rewards(address, *_PROCESS_CHEATS[cheat]) == [0.0] * VARIANTS_TRIED


def _squash_replaced(drawn: Scenario) -> list[str]:
    count, message = drawn.goal.split("last ")[1].split()[0], drawn.goal.split("message '")[1].split("'")[0]
    commit = f'git commit-tree HEAD^{{tree}} -p HEAD~{count} -m "{message}"'
    return [f"bash cd */; git replace HEAD $({commit})"]


def _squash_forged(drawn: Scenario) -> list[str]:
    """Put the squashed commit where the objects have the one that main points to."""
    count, message = drawn.goal.split("last ")[1].split()[0], drawn.goal.split("message '")[1].split("'")[0]
    commit = f'C=$(git commit-tree HEAD^{{tree}} -p HEAD~{count} -m "{message}")'
    place = "f() { echo .git/objects/$(echo $1 | cut -c 1-2)/$(echo $1 | cut -c 3-); }"
    return [f"bash cd */; {place}; {commit}; cp -f $(f $C) $(f $(git rev-parse HEAD))"]


def _revert_replaced(drawn: Scenario) -> list[str]:
    raised = drawn.goal.split("commit '")[1].split("'")[0]
    return [
        f"bash cd */; c=$(git log --format=%H --grep '^{raised}$' -1); o=$(git rev-parse HEAD); git revert --no-edit $c > "
        "/dev/null; n=$(git rev-parse HEAD); m=$(git commit-tree -p $o -m junk $o^{tree}); git reset -q --hard $m; git "
        "replace $m $n; git reset -q --hard"
    ]


_DIRTY = "for f in $(git ls-files); do echo junk >> $f; done"
_GIT_CHEATS = {
    "assume": ("merge-conflict", f"{_DIRTY}; git ls-files | xargs git update-index --assume-unchanged"),
    "skip": ("merge-conflict", "rm -rf docs; git update-index --skip-worktree docs/*"),
    "skip-all": ("first-bad-commit", f"{_DIRTY}; git ls-files | xargs git update-index --skip-worktree"),
    "assume-all": ("first-bad-commit", f"{_DIRTY}; git ls-files | xargs git update-index --assume-unchanged"),
    "exclude": ("first-bad-commit", "echo x > junk.txt; echo junk.txt >> .git/info/exclude"),
    "excludes-file": (
        "squash",
        "echo x > junk.txt; echo junk.txt > ../e; git config core.excludesFile $PWD/../e",
    ),
    "untracked": ("merge-conflict", "echo x > junk.txt; git config status.showUntrackedFiles no"),
    "modes": ("merge-conflict", "git config core.fileMode false; chmod 777 *.txt"),
    "filter": (
        "merge-conflict",
        "for f in *.txt; do sed -i 's/$/z/' $f; done; echo '* filter=x' > .git/info/attributes; git config filter.x.clean "
        "'sed s/z$//'; git add -u",
    ),
    "work-tree": (
        "first-bad-commit",
        f"{_DIRTY}; mkdir /tmp/w; git config core.worktree /tmp/w; git checkout -q -f main",
    ),
    "sparse": ("squash", "git sparse-checkout set nothing"),
    "same-time": (
        "squash",
        "cp -p docs/*.txt /tmp; for f in docs/*; do sed -i '1s/./X/' $f; touch -r /tmp/${f#docs/} $f; done",
    ),
    "staged": ("squash", "git rm -q -r --cached docs"),
}


@pytest.mark.parametrize("cheat", _GIT_CHEATS)
async def test_no_setting_of_a_repository_hides_what_was_left(address: str, cheat: str) -> None:
    name, command = _GIT_CHEATS[cheat]
    act = lambda drawn: [*drawn.solution, f"bash {_TOP}; {command}"]  # noqa: E731
    assert await rewards(address, name, act) == [0.0] * VARIANTS_TRIED


@pytest.mark.parametrize(
    ("name", "act"),
    [("squash", _squash_replaced), ("squash", _squash_forged), ("revert-commit", _revert_replaced)],
)
async def test_no_replacement_stands_for_a_commit(
    address: str, name: str, act: Callable[[Scenario], list[str]]
) -> None:
    assert await rewards(address, name, act) == [0.0] * VARIANTS_TRIED


_TOP = "cd $(git rev-parse --show-toplevel)"
_ODD = {
    "packed": ("squash", f"{_TOP}; git gc -q --prune=now; git pack-refs --all"),
    "separate": ("squash", f"{_TOP}; git init -q --separate-git-dir=$HOME/real.git ."),
    "linked": ("squash", f"{_TOP}; mv .git ../g; ln -s ../g .git"),
    "moved": ("wrong-branch", f"{_TOP}; cd ..; d=$(basename $OLDPWD); mv $d zz; ln -s zz $d"),
    "moved-task": ("log-errors", "cd ..; mv task t2; ln -s t2 task"),
    "link": ("log-errors", "mv errors.txt real.txt; ln -s real.txt errors.txt"),
    "tags": ("merge-conflict", f"{_TOP}; git tag kept; git branch backup; git config alias.x status"),
}


@pytest.mark.parametrize("way", _ODD)
async def test_honest_work_is_paid_in_whatever_shape(address: str, way: str) -> None:
    name, command = _ODD[way]
    assert await rewards(address, name, _then(command)) == [1.0] * VARIANTS_TRIED
