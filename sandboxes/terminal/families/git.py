"""Git: commit, merge, bisect, restore, revert, pick, tag, untrack, squash, count, move and rescue commits."""

from __future__ import annotations

from sandboxes.terminal.checks import git_changed, git_ignores, git_says, keeps, text_is
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


def _restore_deleted(draw: Draw) -> Scenario:
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


def _revert_commit(draw: Draw) -> Scenario:
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


def _cherry_pick(draw: Draw) -> Scenario:
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


def _untrack_file(draw: Draw) -> Scenario:
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


def _squash(draw: Draw) -> Scenario:
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


def _wrong_branch(draw: Draw) -> Scenario:
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


def _lost_commit(draw: Draw) -> Scenario:
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


TEMPLATES = (
    Template("commit-on-branch", "git", "train", _commit_on_branch),
    Template("merge-conflict", "git", "train", _merge_conflict),
    Template("first-bad-commit", "git", "train", _first_bad_commit),
    Template("restore-deleted", "git", "train", _restore_deleted),
    Template("revert-commit", "git", "train", _revert_commit),
    Template("cherry-pick", "git", "train", _cherry_pick),
    Template("tag-versions", "git", "train", _tag_versions),
    Template("untrack-file", "git", "train", _untrack_file),
    Template("squash", "git", "train", _squash),
    Template("author-counts", "git", "train", _author_counts),
    Template("wrong-branch", "git", "held_out", _wrong_branch),
    Template("lost-commit", "git", "held_out", _lost_commit),
)
"""All tasks of this family."""
