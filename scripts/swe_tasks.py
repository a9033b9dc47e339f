"""Choose the tasks of the `swe` environment: plant bugs, run the tests, write `sandboxes/swe/tasks.json`.

    python scripts/swe_tasks.py                  write the index (some minutes)
    python scripts/swe_tasks.py --check 40       is it fresh? runs 40 of its tasks with pytest
    python scripts/swe_tasks.py --check all

A bug counts as a task if the tests end with it, at least one visible and one hidden test fail, and a failing hidden test
can be told as a report. All choices are hashes of the seed and the bug's own text: the same packages give the same index.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from swe_mutants import Run, Workshop, workshop

from sandboxes.swe.bugs.mutate import TRAIN_FAMILIES, UNSEEN_FAMILIES, Bug, bugs_of, plant
from sandboxes.swe.factory import INDEX, PACKAGES, Planted, difficulty, package_digest, read_index

SEED = 0
TRIED_PER_FAMILY = 14
"""So many bugs of a family are tried in one file."""
PER_PACKAGE = {"train": 20, "held_out": 14, "held_out_family": 10}
PER_FUNCTION = 6
PER_LINE = 2
SLIPS_TRIED = 6
UNSEEN_SHARE = 3
"""One package of so many is unseen."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A bug that tests notice."""

    package: str
    file: str
    bug: Bug
    run: Run
    report: str
    sites: int
    lines: int
    """Lines of the file."""

    @property
    def failing(self) -> int:
        """Visible tests that fail."""
        return sum(not passed for passed in self.run.visible.values())


def draw(*words: object) -> str:
    """Return a hash to sort by: a fixed random order."""
    return hashlib.sha256(":".join(map(str, (SEED, *words))).encode()).hexdigest()


def modules(package: Path) -> list[Path]:
    """Return the files that bugs are planted into."""
    return [path for path in sorted((package / package.name).glob("*.py")) if path.name != "__init__.py"]


def candidates(package: Path, shop: Workshop, families: Iterable[str]) -> list[Candidate]:
    """Return the bugs of one package that make tasks."""
    found = []
    for path in modules(package):
        text, file = path.read_text(), path.relative_to(package).as_posix()
        for family in families:
            every = bugs_of(text, family)
            tried = sorted(every, key=lambda bug: draw(package.name, file, bug.family, bug.line, bug.new))
            for bug in tried[:TRIED_PER_FAMILY]:
                run = shop.run(file, plant(text, bug))
                told = [run.reports.get(test, "") for test, passed in run.hidden.items() if not passed]
                report = min((text for text in told if text), key=len, default="")
                if run.ended and report and not all(run.visible.values()):
                    lines = text.count("\n")
                    found.append(Candidate(package.name, file, bug, run, report, len(every), lines))
    return found


def choose(found: Sequence[Candidate], most: int, so_far: Counter[str]) -> list[Candidate]:
    """Take up to `most`, always of the family that has fewest so far, spread over functions and lines."""
    left = sorted(found, key=lambda one: draw("order", one.package, one.file, one.bug.line, one.bug.new))
    chosen: list[Candidate] = []
    used: Counter[tuple[str, ...]] = Counter()
    while left and len(chosen) < most:
        here = Counter(one.bug.family for one in chosen)

        def rank(one: Candidate, here: Counter[str] = here) -> tuple[int, ...]:
            family, line = one.bug.family, f"{one.bug.line}"
            return (
                so_far[family] + 2 * here[family],
                used[one.file, line],
                used[one.file, "", one.bug.function],
            )

        one = min(left, key=rank)
        left.remove(one)
        line, function = (one.file, f"{one.bug.line}"), (one.file, "", one.bug.function)
        if used[line] < PER_LINE and used[function] < PER_FUNCTION:
            chosen.append(one)
            so_far[one.bug.family] += 1
            used[line] += 1
            used[function] += 1
    return chosen


def slip_for(one: Candidate, text: str, shop: Workshop) -> tuple[int, str, str] | None:
    """Return a wrong attempt at a fix: another small change of the broken file, with which tests still fail."""
    broken = plant(text, one.bug)
    key = (one.package, one.file, one.bug.line, one.bug.new)
    if int(draw("slip", *key), 16) % 2:
        return None
    guesses = [bug for family in TRAIN_FAMILIES for bug in bugs_of(broken, family)]
    near = int(draw("near", *key), 16) % 2 == 0
    guesses.sort(key=lambda bug: (near and bug.function != one.bug.function, draw(bug.line, bug.new, *key)))
    for guess in guesses[:SLIPS_TRIED]:
        tried = plant(broken, guess)
        run = shop.run(one.file, tried)
        if run.ended and tried != text and not all(run.visible.values()) and not all(run.hidden.values()):
            return guess.line, guess.old, guess.new
    return None


def planted(one: Candidate, split: str, text: str, shop: Workshop) -> Planted:
    """Return the index entry of a chosen bug."""
    fails = tuple(test for test, passed in one.run.hidden.items() if not passed)
    return Planted(
        package=one.package,
        split=split,
        file=one.file,
        family=one.bug.family,
        line=one.bug.line,
        old=one.bug.old,
        new=one.bug.new,
        fail_to_pass=fails,
        difficulty=difficulty(
            lines=one.lines, sites=one.sites, failing=one.failing, fix_lines=one.bug.old.count("\n") + 1
        ),
        report=one.report,
        slip=slip_for(one, text, shop),
    )


def make() -> tuple[dict[str, object], list[Planted]]:
    """Return the index: the packages, and the tasks in the order of their splits."""
    names = sorted((path.name for path in PACKAGES.iterdir() if (path / path.name).is_dir()), key=draw)
    unseen = set(names[: len(names) // UNSEEN_SHARE])
    packages: dict[str, object] = {}
    tasks: list[Planted] = []
    counts = {split: Counter[str]() for split in PER_PACKAGE}
    for name in sorted(names):
        package = PACKAGES / name
        wanted = {"held_out": TRAIN_FAMILIES, "held_out_family": UNSEEN_FAMILIES}
        with workshop(package) as shop:
            whole = shop.confirm()
            if not whole.ended or not all([*whole.visible.values(), *whole.hidden.values()]):
                bad = [test for test, passed in (*whole.visible.items(), *whole.hidden.items()) if not passed]
                raise SystemExit(
                    f"package {name!r}: its own tests fail: {', '.join(bad) or 'not even collected'}"
                )
            for split, families in (wanted if name in unseen else {"train": TRAIN_FAMILIES}).items():
                found = candidates(package, shop, families)
                chosen = choose(found, PER_PACKAGE[split], counts[split])
                tasks += [planted(one, split, (package / one.file).read_text(), shop) for one in chosen]
        packages[name] = {"digest": package_digest(name), "hidden": sorted(whole.hidden)}
        print(f"{name}: {sum(task.package == name for task in tasks)} tasks", flush=True)
    tasks.sort(key=lambda task: (tuple(PER_PACKAGE).index(task.split), draw("place", task.key)))
    return packages, tasks


def write() -> None:
    """Make the index and write it, one task per line."""
    packages, tasks = make()
    lines = [json.dumps(task.row(), ensure_ascii=False, separators=(",", ":")) for task in tasks]
    head = ",\n".join(f"{json.dumps(name)}:{json.dumps(packages[name])}" for name in sorted(packages))
    INDEX.write_text('{"packages":{\n' + head + '\n},\n"tasks":[\n' + ",\n".join(lines) + "\n]}\n")
    for split in PER_PACKAGE:
        here = [task for task in tasks if task.split == split]
        print(f"{split}: {len(here)} tasks of {len({task.package for task in here})} packages")
        for family, count in sorted(Counter(task.family for task in here).items()):
            print(f"  {family}: {count}")


def check(sample: str) -> list[str]:
    """Return what is wrong with the committed index."""
    index = read_index()
    names = {path.name for path in PACKAGES.iterdir() if (path / path.name).is_dir()}
    wrong = [f"package {name!r} is not in the index" for name in sorted(names - set(index.packages))]
    wrong += [f"package {name!r} is gone" for name in sorted(set(index.packages) - names)]
    wrong += [
        f"package {name!r} was changed since"
        for name in sorted(names & set(index.packages))
        if package_digest(name) != index.packages[name].digest
    ]
    if wrong:
        return wrong
    tasks = sorted(index.tasks, key=lambda task: draw("check", task.key))
    for task in tasks if sample == "all" else tasks[: int(sample)]:
        with workshop(PACKAGES / task.package) as shop:
            text = (PACKAGES / task.package / task.file).read_text()
            run = shop.confirm(task.file, plant(text, task.bug))
        fails = tuple(sorted(test for test, passed in run.hidden.items() if not passed))
        if not run.ended or all(run.visible.values()) or fails != tuple(sorted(task.fail_to_pass)):
            wrong.append(f"task {task.key}: now {fails} fail, not {task.fail_to_pass}")
    return wrong


def main() -> None:
    """Read the command line and do what it says."""
    parser = argparse.ArgumentParser(description="Choose the tasks of the swe environment.")
    parser.add_argument("--check", metavar="COUNT", help="verify the index; run COUNT of its tasks, or all")
    asked = parser.parse_args()
    fixed = {"PYTHONHASHSEED": "0", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    if any(os.environ.get(name) != value for name, value in fixed.items()):
        os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, **fixed})
    if asked.check is None:
        write()
        return
    if wrong := check(asked.check):
        raise SystemExit("\n".join([*wrong, "The index is stale: run scripts/swe_tasks.py and commit it."]))
    print(f"{INDEX.name} is fresh.")


if __name__ == "__main__":
    main()
