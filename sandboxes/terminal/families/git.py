"""Git: commit, merge, bisect, tag and count; `mending` has what puts right what went wrong."""

from __future__ import annotations

from sandboxes.terminal.checks import git_changed, git_says, keeps, text_is
from sandboxes.terminal.families import mending
from sandboxes.terminal.families.repository import Repository, begin
from sandboxes.terminal.scenario import Scenario, Template
from sandboxes.terminal.words import Draw

__all__ = ["TEMPLATES"]


def _commit_on_branch(draw: Draw) -> Scenario:
    repository, author, subjects = begin(draw)
    old, new = draw.rng.sample(range(2, 60), 2)
    word, branch = draw.name("word"), draw.name("place")
    settings = f"name = {word}\ntimeout = {old}\nretries = {old + 1}\n"
    repository.commit(author, "Add settings", {"settings.ini": settings, "notes.txt": f"{word}\n"})
    repository.write("notes.txt", f"{word}\nnot ready\n")
    message = f"Raise the timeout to {new}"
    name = repository.name
    return Scenario(
        goal=f"In the git repository {name}, make a branch {branch} from main, and in it one commit that changes timeout "
        f"in settings.ini from {old} to {new} and nothing else, with the message '{message}'. main stays where it is, and "
        "the change to notes.txt, which is not committed yet, stays that way.",
        setup=repository.script,
        checks=(
            repository.log(branch, [message, "Add settings", *subjects]),
            repository.log("main", ["Add settings", *subjects], guard=True),
            repository.says("the files of the commit", f"diff --name-only main {branch} --", "settings.ini"),
            repository.says(
                "settings.ini",
                f"show {branch}:settings.ini",
                settings.replace(f"timeout = {old}", f"timeout = {new}"),
            ),
            keeps({f"{name}/notes.txt": f"{word}\nnot ready\n".encode()}),
            git_changed("notes.txt is not committed", lambda changed: changed == ["notes.txt"], folder=name),
        ),
        solution=(
            f"bash cd {name} && git status --short --branch && cat settings.ini",
            f"bash git checkout -b {branch} && sed -i 's/^timeout = {old}$/timeout = {new}/' settings.ini && git diff "
            "--stat",
            f"bash git commit -q -m '{message}' settings.ini; git status --short --branch",
        ),
        shortcuts=(
            f"bash cd {name}; git checkout -q -b {branch}; sed -i 's/timeout = {old}/timeout = {new}/' settings.ini; git "
            f"commit -qam '{message}'",
            f"bash cd {name}; git checkout -q -b {branch}; git commit -q --allow-empty -m '{message}'",
        ),
    )


def _merge_conflict(draw: Draw) -> Scenario:
    repository, author, subjects = begin(draw, 2)
    other, branch = draw.name("person"), draw.name("place")
    first, ours, theirs, last = draw.names("word", 4)
    listed = f"{first}\n{last}\n"
    repository.commit(author, "Begin the list", {"list.txt": listed})
    repository.run(f"git checkout -q -b {branch}")
    repository.commit(
        other, f"List {theirs}", {"list.txt": f"{first}\n{theirs}\n{last}\n", "more.txt": f"{theirs}\n"}
    )
    repository.run("git checkout -q main")
    repository.commit(author, f"List {ours}", {"list.txt": f"{first}\n{ours}\n{last}\n"})
    name, merged = repository.name, f"{first}\n{ours}\n{theirs}\n{last}\n"
    conflict = f"<<<<<<< HEAD\n{ours}\n=======\n{theirs}\n>>>>>>> {branch}"
    return Scenario(
        goal=f"In the git repository {name}, merge the branch {branch} into main with a merge commit. Where list.txt is "
        f"in conflict, keep both lines, first that of main, then that of {branch}. Nothing may be left uncommitted.",
        setup=repository.script,
        checks=(
            repository.says("list.txt on main", "show main:list.txt", merged),
            repository.says("more.txt on main", "show main:more.txt", f"{theirs}\n"),
            repository.says("one merge commit", "rev-list --count --merges main", "1"),
            repository.says("the branch is merged", f"merge-base --is-ancestor {branch} main", ""),
            repository.says(
                "history of main",
                "log --first-parent --skip=1 --format=%s main --",
                f"List {ours}\nBegin the list\n" + "\n".join(subjects),
            ),
            repository.says("main is checked out", "symbolic-ref --short HEAD", "main", guard=True),
            repository.clean(),
        ),
        solution=(
            f"bash cd {name} && git merge {branch}",
            "bash cat list.txt",
            f"edit {name}/list.txt\n<<<<<<<<<\n{conflict}\n=========\n{ours}\n{theirs}\n>>>>>>>>>",
            f"bash git add list.txt && git commit -q -m 'Merge {branch}' && git log --oneline --graph | cat; cat list.txt",
        ),
        shortcuts=(
            f"bash cd {name}; git merge -q -X ours {branch}",
            f"bash cd {name}; git merge {branch}; git add -A; git commit -qm merged",
            f"bash cd {name}; printf '{first}\\n{ours}\\n{theirs}\\n{last}\\n' > list.txt; git commit -qam 'Merge {branch}'",
        ),
    )


def _first_bad_commit(draw: Draw) -> Scenario:
    repository, author = Repository(draw.name("service")), draw.name("person")
    things = draw.names("thing", 11)
    limit, bad = draw.number(100, 200), draw.number(4, 8)
    for number, thing in enumerate(things):
        price = draw.number(1, limit - 1) if number != bad else limit + draw.number(1, 50)
        repository.commit(author, f"Price the {thing}", {f"prices/{thing}.txt": f"{price}\n"})
    name = repository.name
    check = f"# Succeeds if no price is over {limit}.\nfor p in prices/*; do [ $(cat $p) -le {limit} ] || exit 1; done\n"
    return Scenario(
        goal=f"check.sh, run with sh in the git repository {name}, succeeds at the first commit of main and fails at the "
        "last one. Write the full hash of the first commit at which it fails to answer.txt (in the folder where you "
        "start). In the end main must be checked out, with nothing changed.",
        files={"check.sh": check.encode()},
        setup=repository.script,
        checks=(
            git_says(
                "answer.txt",
                ("log", "-1", "--format=%s"),
                f"Price the {things[bad]}",
                folder=name,
                named_in="answer.txt",
            ),
            repository.says("main is checked out", "symbolic-ref --short HEAD", "main", guard=True),
            repository.log("main", [f"Price the {thing}" for thing in reversed(things)], guard=True),
            repository.clean(),
        ),
        solution=(
            f"bash cd {name} && git log --oneline && sh ../check.sh",
            "bash git bisect start HEAD $(git rev-list --max-parents=0 HEAD) > /dev/null; git bisect run sh ../check.sh "
            "| tail -n 3",
            "bash git rev-parse refs/bisect/bad > ../answer.txt; git bisect reset 2> /dev/null; cat ../answer.txt; git "
            "status --short --branch",
        ),
        shortcuts=(
            f"bash git -C {name} rev-parse HEAD > answer.txt",
            f"bash git -C {name} log --format=%H | tail -n 1 > answer.txt",
        ),
    )


def _tag_versions(draw: Draw) -> Scenario:
    repository, author, _ = begin(draw, 1)
    versions = [f"{draw.number(0, 3)}.{minor}.{draw.number(0, 9)}" for minor in range(1, 4)]
    for version in versions:
        repository.commit(author, f"Work towards {version}", {"work.txt": f"{version}\n"})
        repository.commit(author, f"Set the version to {version}", {"VERSION": f"{version}\n"})
        repository.commit(author, f"Polish after {version}", {"polish.txt": f"{draw.code(version)}\n"})
    repository.run(f"git tag -a -m 'Release {versions[0]}' v{versions[0]} HEAD~7")
    name = repository.name
    expected = sorted(f"tag v{v} Release {v} Set the version to {v}" for v in versions)
    shown = "--format=%(objecttype) %(refname:short) %(contents:subject) %(*subject)"
    return Scenario(
        goal=f"In the git repository {name}, each version that the file VERSION ever had on main should have an annotated "
        "tag: v and the version as name, 'Release ' and the version as message, on the commit that wrote this version "
        "into the file. Add those that are missing.",
        setup=repository.script,
        checks=(
            git_says(
                "the tags",
                ("for-each-ref", "--sort=refname", shown, "refs/tags"),
                "\n".join(expected),
                folder=name,
            ),
            repository.clean(),
        ),
        solution=(
            f"bash cd {name} && git tag -n && git log --oneline -- VERSION",
            "bash for c in $(git log --format=%h -- VERSION); do v=$(git show $c:VERSION); git tag -a -m "
            '"Release $v" v$v $c; done',
            "bash git tag -n",
        ),
        shortcuts=(
            f'bash cd {name}; for v in {" ".join(versions[1:])}; do git tag -a -m "Release $v" v$v; done',
            f"bash cd {name}; for c in $(git log --format=%h -- VERSION); do git tag v$(git show $c:VERSION) $c; done",
        ),
    )


def _author_counts(draw: Draw) -> Scenario:
    repository, people = Repository(draw.name("service")), draw.names("person", 4)
    counts = dict.fromkeys(people, 0)

    def some(commits: int) -> None:
        for _ in range(commits):
            who = draw.rng.choice(people)
            counts[who] += 1
            number = sum(counts.values())
            repository.commit(
                who, f"Step {number}", {f"steps/{number}.txt": f"{number} by {draw.rng.choice(people)}\n"}
            )

    branch = draw.name("place")
    some(6)
    repository.run(f"git checkout -q -b {branch}")
    some(5)
    repository.run("git checkout -q main")
    some(3)
    repository.run("git merge -q --no-edit " + branch + f"; git checkout -q -b {draw.name('place')}")
    some(3)
    repository.run("git checkout -q main")
    ranked = sorted((-count, who) for who, count in counts.items() if count)
    name = repository.name
    return Scenario(
        goal=f"Count the commits of each author on all branches of the git repository {name}, each commit once, merge "
        "commits left out. Write authors.txt (in the folder where you start) with a line for each: the name, a space, "
        "the number; highest number first, equal numbers in alphabetical order.",
        setup=repository.script,
        checks=(
            text_is("authors.txt", "\n".join(f"{who} {-count}" for count, who in ranked)),
            repository.clean(),
        ),
        solution=(
            f"bash cd {name} && git log --all --oneline --graph --format='%h %an %s' | head -n 12; cd ..",
            f"bash git -C {name} log --all --no-merges --format=%an | sort | uniq -c | awk '{{ print $2, $1 }}' | sort "
            "-k2,2nr -k1,1 > authors.txt; cat authors.txt",
        ),
        shortcuts=(
            "bash touch authors.txt",
            f"bash git -C {name} log --format=%an | sort | uniq -c | awk '{{ print $2, $1 }}' | sort -k2,2nr -k1,1 > "
            "authors.txt",
        ),
    )


TEMPLATES = (
    Template("commit-on-branch", "git", "train", _commit_on_branch),
    Template("merge-conflict", "git", "train", _merge_conflict),
    Template("first-bad-commit", "git", "train", _first_bad_commit),
    Template("restore-deleted", "git", "train", mending.restore_deleted),
    Template("revert-commit", "git", "train", mending.revert_commit),
    Template("cherry-pick", "git", "train", mending.cherry_pick),
    Template("tag-versions", "git", "train", _tag_versions),
    Template("untrack-file", "git", "train", mending.untrack_file),
    Template("squash", "git", "train", mending.squash),
    Template("author-counts", "git", "train", _author_counts),
    Template("wrong-branch", "git", "held_out", mending.wrong_branch),
    Template("lost-commit", "git", "held_out", mending.lost_commit),
)
"""All tasks of this family."""
