"""Git put right: restore, revert, pick, untrack, squash, move and rescue commits. Templates of the family `git`."""

from __future__ import annotations

from sandboxes.terminal.checks import git_ignores, git_says, keeps
from sandboxes.terminal.families.repository import begin
from sandboxes.terminal.scenario import Scenario
from sandboxes.terminal.words import Draw

__all__ = [
    "cherry_pick",
    "lost_commit",
    "restore_deleted",
    "revert_commit",
    "squash",
    "untrack_file",
    "wrong_branch",
]


def restore_deleted(draw: Draw) -> Scenario:
    """A file that a commit deleted is to come back."""
    repository, author, _ = begin(draw, 2)
    wanted, other = draw.names("word", 2)
    texts = [f"{wanted}, edition {edition}: {draw.code(f'edition {edition}')}\n" for edition in range(3)]
    path = f"pages/{wanted}.txt"
    repository.commit(author, f"Begin {wanted}", {path: texts[0], f"pages/{other}.txt": f"{other}\n"})
    repository.commit(author, f"Go on with {wanted}", {path: texts[1]})
    repository.commit(author, f"Finish {wanted}", {path: texts[2]})
    repository.run(f"rm {path}")
    repository.commit(author, "Tidy up the pages", {"docs/index.txt": "tidy\n"})
    repository.commit(author, f"Improve {other}", {f"pages/{other}.txt": f"{other}, better\n"})
    name = repository.name
    return Scenario(
        goal=f"In the git repository {name} a file {wanted}.txt was deleted in an earlier commit. Bring it back to its "
        f"place with the content that it had last, and commit it on main with the message 'Restore {wanted}.txt'. Nothing "
        "else changes.",
        setup=repository.script,
        checks=(
            repository.says("its content", f"show main:{path}", texts[2]),
            repository.says("the last commit", "log -1 --format=%s main --", f"Restore {wanted}.txt"),
            repository.says("what it changed", "diff --name-status main~1 main --", f"A\t{path}"),
            repository.says("what was before", "log --skip=1 -1 --format=%s main --", f"Improve {other}"),
            repository.clean(),
        ),
        solution=(
            f"bash cd {name} && git checkout HEAD -- pages/{wanted}.txt",
            f"bash git log --diff-filter=D --name-only --format='%h %s' -- '*{wanted}.txt'",
            f"bash c=$(git log --diff-filter=D --format=%h -- {path}) && git checkout $c~1 -- {path} && git commit -q -m "
            f"'Restore {wanted}.txt' && cat {path}",
        ),
        shortcuts=(
            f"bash cd {name}; touch {path}; git add -A; git commit -qm 'Restore {wanted}.txt'",
            f"bash cd {name}; git checkout -q $(git log --format=%h --grep=Begin -1 --all -- {path}) -- {path}; git "
            f"commit -qm 'Restore {wanted}.txt'",
        ),
    )


def revert_commit(draw: Draw) -> Scenario:
    """A commit is to be taken back by another."""
    repository, author, subjects = begin(draw, 2)
    words = draw.names("word", 3)
    settings = "".join(f"{word} = {draw.number(1, 40)}\n" for word in words)
    changed = settings.replace(f"{words[0]} = ", f"{words[0]} = 9", 1)
    later = changed + f"{draw.name('word')} = 1\n"
    repository.commit(author, "Add settings", {"settings.ini": settings + "\n\n"})
    repository.commit(author, f"Raise {words[0]}", {"settings.ini": changed + "\n\n", "raised.txt": "yes\n"})
    repository.commit(
        author, "Add one more setting", {"settings.ini": changed + "\n\n" + later[len(changed) :]}
    )
    repository.commit(author, "Write a note", {"note.txt": f"{draw.code('note')}\n"})
    history = ["Write a note", "Add one more setting", f"Raise {words[0]}", "Add settings", *subjects]
    name, pick = repository.name, f"$(git log --format=%h --grep='^Raise {words[0]}$')"
    return Scenario(
        goal=f"In the git repository {name}, take back what the commit 'Raise {words[0]}' did, with one new commit on "
        "main with git's own message for that. All other changes stay, and no commit is removed.",
        setup=repository.script,
        checks=(
            repository.log("main", [f'Revert "Raise {words[0]}"', *history]),
            repository.says(
                "settings.ini", "show main:settings.ini", settings + "\n\n" + later[len(changed) :]
            ),
            repository.says(
                "raised.txt is gone", "ls-tree --name-only main -- raised.txt note.txt", "note.txt"
            ),
            repository.clean(),
        ),
        solution=(
            f"bash cd {name} && git log --oneline",
            f"bash git revert --no-edit {pick} && git show --stat --format=%s HEAD",
        ),
        shortcuts=(
            f"bash cd {name}; git commit -q --allow-empty -m 'Revert \"Raise {words[0]}\"'",
            f"bash cd {name}; git reset -q --hard {pick}~1",
        ),
    )


def cherry_pick(draw: Draw) -> Scenario:
    """One commit of another branch is to be on this one."""
    repository, author, subjects = begin(draw, 2)
    things, other = draw.names("thing", 6), draw.name("person")
    repository.run("git branch release; git checkout -q -b develop")
    fixes = draw.rng.sample(range(6), 2)
    done: list[str] = []
    authors: list[str] = []
    for number, thing in enumerate(things):
        message = f"Fix the {thing}" if number in fixes else f"Paint the {thing}"
        who = other if number % 2 else author
        repository.commit(who, message, {f"parts/{thing}.txt": f"{draw.code(thing)}\n"})
        done.insert(0, message)
        if number in fixes:
            authors.insert(0, who)
    name, picked = repository.name, [message for message in done if message.startswith("Fix")]
    parts = "\n".join(sorted(f"parts/{message.split()[-1]}.txt" for message in picked))
    return Scenario(
        goal=f"In the git repository {name}, bring those commits of the branch develop whose messages begin with Fix to "
        "the branch release, in their order and with their messages and authors. Nothing else of develop goes there, and "
        "develop stays.",
        setup=repository.script,
        checks=(
            repository.log("release", [*picked, *subjects]),
            repository.says("their authors", "log --format=%an main..release --", "\n".join(authors)),
            repository.says("what release got", "diff --name-only main release --", parts),
            repository.log("develop", [*done, *subjects], guard=True),
            repository.clean(),
        ),
        solution=(
            f"bash cd {name} && git log --oneline --reverse main..develop",
            "bash git checkout -q release && git cherry-pick $(git log --reverse --format=%h --grep='^Fix' "
            "main..develop) > /dev/null; git log --oneline",
        ),
        shortcuts=(
            f"bash cd {name}; git checkout -q release; git merge -q develop",
            f"bash cd {name}; git checkout -q release; git cherry-pick $(git log -1 --format=%h --grep='^Fix' develop)",
        ),
    )


def untrack_file(draw: Draw) -> Scenario:
    """A file is to stay, and be followed no more."""
    repository, author, subjects = begin(draw, 2)
    word = draw.name("word")
    secret, other = f"{word}.env", f"{word}.env.example"
    files = {f"conf/{secret}": f"CODE={draw.code('code')}\n", f"conf/{other}": "CODE=\n"}
    repository.commit(author, "Add configuration", {**files, ".gitignore": "*.log\n"})
    name, message = repository.name, f"Stop tracking {secret}"
    return Scenario(
        goal=f"In the git repository {name}, conf/{secret} should not be tracked any more, but the file stays in the work "
        f"tree as it is. Add a line to .gitignore that makes git ignore it (and not conf/{other}), and commit both on "
        f"main with the message '{message}'.",
        setup=repository.script,
        checks=(
            repository.log("main", [message, "Add configuration", *subjects]),
            repository.says("what is tracked", "ls-tree --name-only main conf/", f"conf/{other}"),
            repository.says(
                "what the commit changed",
                "diff --name-status main~1 main --",
                f"M\t.gitignore\nD\tconf/{secret}",
            ),
            git_ignores(
                [f"conf/{secret}", f"conf/{other}", "a.log"], [f"conf/{secret}", "a.log"], folder=name
            ),
            keeps({f"{name}/{path}": text.encode() for path, text in files.items()}),
            repository.clean(),
        ),
        solution=(
            f"bash cd {name} && git ls-files && cat .gitignore",
            f"bash git rm -q --cached conf/{secret} && echo /conf/{secret} >> .gitignore && git add .gitignore && git "
            "status --short",
            f"bash git commit -q -m '{message}' && git show --stat --format=%s && ls conf",
        ),
        shortcuts=(
            f"bash cd {name}; git rm -q conf/{secret}; echo conf/{secret} >> .gitignore; git commit -qam '{message}'",
            f"bash cd {name}; echo conf/{secret} >> .gitignore; git commit -qam '{message}'",
        ),
    )


def squash(draw: Draw) -> Scenario:
    """Several commits are to become one."""
    repository, author, subjects = begin(draw, 3)
    count, things = draw.number(3, 5), draw.names("thing", 5)
    files = {}
    for thing in things[:count]:
        files[f"parts/{thing}.txt"] = f"{draw.code(thing)}\n"
        repository.commit(author, f"wip {thing}", {f"parts/{thing}.txt": files[f"parts/{thing}.txt"]})
    name, message = repository.name, f"Add {count} parts"
    return Scenario(
        goal=f"In the git repository {name}, make one commit out of the last {count} commits of main, with the message "
        f"'{message}' and all their changes. The commits before them stay as they are.",
        setup=repository.script,
        checks=(
            repository.log("main", [message, *subjects]),
            repository.says("what it holds", "diff --name-only main~1 main --", "\n".join(sorted(files))),
            repository.says("main is checked out", "symbolic-ref --short HEAD", "main", guard=True),
            keeps({f"{name}/{path}": text.encode() for path, text in files.items()}),
            repository.clean(),
        ),
        solution=(
            f"bash cd {name} && git log --oneline",
            f"bash git reset -q --soft HEAD~{count} && git commit -q -m '{message}' && git log --oneline && git status "
            "--short",
        ),
        shortcuts=(
            f"bash cd {name}; git commit -q --allow-empty -m '{message}'",
            f"bash cd {name}; git reset -q --hard HEAD~{count}; git commit -q --allow-empty -m '{message}'",
        ),
    )


def wrong_branch(draw: Draw) -> Scenario:
    """Commits made on the wrong branch are to move."""
    repository, author, subjects = begin(draw, 3)
    things, branch, count = draw.names("thing", 3), draw.name("place"), draw.number(2, 3)
    moved: list[str] = []
    for thing in things[:count]:
        moved.insert(0, f"Try the {thing}")
        repository.commit(author, moved[0], {f"trials/{thing}.txt": f"{draw.code(thing)}\n"})
    name = repository.name
    return Scenario(
        goal=f"In the git repository {name} the last {count} commits of main were meant for a branch of their own. Make a "
        f"branch {branch} that has them (as the same commits) on top of what main had before, set main back to what it "
        f"had before, and leave {branch} checked out.",
        setup=repository.script,
        checks=(
            repository.log(branch, [*moved, *subjects]),
            repository.log("main", subjects),
            repository.says(f"{branch} is checked out", "symbolic-ref --short HEAD", branch),
            git_says(
                "the same commits",
                ("log", "--format=%an %ct", branch, "--"),
                repository.times(author),
                folder=name,
            ),
            repository.clean(),
        ),
        solution=(
            f"bash cd {name} && git log --oneline --decorate",
            f"bash git checkout -q -b {branch} && git branch -f main HEAD~{count} && git log --oneline --decorate",
        ),
        shortcuts=(
            f"bash cd {name}; git checkout -q -b {branch}",
            f"bash cd {name}; git reset -q --hard HEAD~{count}; git checkout -q -b {branch}",
        ),
    )


def lost_commit(draw: Draw) -> Scenario:
    """A commit that no branch holds any more is to be found."""
    repository, author, subjects = begin(draw, 3)
    thing, other, branch = draw.name("thing"), draw.name("thing"), draw.name("place")
    text = f"{thing}: {draw.code(thing)}\n"
    for name, content in ((other, "no\n"), (thing, text)):
        repository.commit(author, f"Draw the {name}", {f"plans/{name}.txt": content})
        repository.run("git reset -q --hard HEAD~1")
    name = repository.name
    return Scenario(
        goal=f"In the git repository {name} somebody reset main, and now the commit 'Draw the {thing}' is on no branch "
        f"any more. Find it and make a branch {branch} that points to it. main stays as it is and checked out.",
        setup=repository.script,
        checks=(
            repository.log(branch, [f"Draw the {thing}", *subjects]),
            repository.says("its content", f"show {branch}:plans/{thing}.txt", text),
            repository.says("its author", f"log -1 --format=%an {branch} --", author),
            repository.log("main", subjects, guard=True),
            repository.says("main is checked out", "symbolic-ref --short HEAD", "main", guard=True),
            repository.clean(),
        ),
        solution=(
            f"bash cd {name} && git log --all --oneline --grep='{thing}'",
            "bash git reflog",
            f"bash git branch {branch} $(git reflog --format='%h %gs' | grep 'commit: Draw the {thing}$' | cut -d ' ' -f "
            f"1) && git log --oneline {branch}",
        ),
        shortcuts=(
            f"bash cd {name}; git branch {branch}",
            f"bash cd {name}; git checkout -q -b {branch}; git commit -q --allow-empty -m 'Draw the {thing}'; git "
            "checkout -q main",
        ),
    )
