"""The checks themselves: what the played episodes say, each as one line with its evidence.

Each check is one function of the episodes, without any of its own; a check that cannot be made is a SKIP that says why,
never a PASS.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from rock_env.vetting.episodes import Episode, Subject
from rock_env.vetting.hacks import kind_of
from rock_env.vetting.leaks import Scan

__all__ = [
    "CHECKS",
    "RANDOM_BOUND",
    "Finding",
    "Played",
    "chance_loses",
    "hacks_earn_nothing",
    "honest_work_is_paid",
    "idle_scores_nothing",
    "no_leaks",
    "oracle_solves",
    "replay_continues",
    "same_observations",
    "same_verdict",
    "snapshot_continues",
]

RANDOM_BOUND = 0.5
"""Most of the episodes that chance may win: from there on success says little."""
SLOW_STEP_S = {False: 1.0, True: 10.0}
"""Longest median step, without and with a sandbox."""
_SHOWN = 3


@dataclass(frozen=True, slots=True)
class Finding:
    """What a check found."""

    result: str
    """PASS, FAIL, SKIP, or WARN: something to look at that costs no task its place."""
    evidence: str
    wrong: Mapping[str, str] = field(default_factory=dict)
    """What is wrong with which task, where a failure is some tasks' own."""


@dataclass(slots=True)
class Played:
    """All episodes of a vetting by the task's title, in the order of the tasks."""

    subject: Subject
    idle: Mapping[str, list[Episode]] = field(default_factory=dict)
    oracle: Mapping[str, list[Episode]] = field(default_factory=dict)
    """With seed 0 twice, then with another one; a task without a reference solution has none."""
    no_oracle: Mapping[str, str] = field(default_factory=dict)
    """Why a task has none."""
    explored: Mapping[str, list[Episode]] = field(default_factory=dict)
    """Of a task without a reference solution: random actions, and these actions again."""
    chance: Mapping[str, list[Episode]] = field(default_factory=dict)
    replayed: Mapping[str, Episode] = field(default_factory=dict)
    restored: Mapping[str, Episode] = field(default_factory=dict)
    no_snapshots: str = ""
    scans: Mapping[str, Scan] = field(default_factory=dict)
    hacked: Mapping[str, Mapping[str, Episode]] = field(default_factory=dict)
    """By the name of the hack."""
    honest: Mapping[str, Mapping[str, Episode]] = field(default_factory=dict)
    """By the name of the variant."""
    left_behind: tuple[str, ...] = ()
    took_s: dict[str, float] = field(default_factory=dict)
    """How long the episodes of a check took, by the check's name."""

    def pasts(self) -> dict[str, list[Episode]]:
        """Return what can be played again: by a task's reference solution, else by random actions."""
        return {**self.explored, **self.oracle}

    def solved(self) -> list[tuple[str, list[Episode]]]:
        """Return the tasks whose reference solution always succeeds, with its episodes."""
        certain = {self.subject.title(task) for task in self.subject.tasks if self.subject.certain(task)}
        return [(title, episodes) for title, episodes in self.oracle.items() if title in certain]


def _result(wrong: Mapping[str, str], right: str) -> Finding:
    if not wrong:
        return Finding("PASS", right)
    return Finding("FAIL", _listed(wrong), wrong)


def _listed(wrong: Mapping[str, str]) -> str:
    shown = [f"{title}: {what}" for title, what in wrong.items()][:_SHOWN]
    more = f"; and {len(wrong) - _SHOWN} more" if len(wrong) > _SHOWN else ""
    return "; ".join(shown) + more


def _grade(episode: Episode) -> tuple[float, bool] | None:
    """Return a grade without its words, which may tell times."""
    return None if episode.verdict is None else (episode.verdict.reward, episode.verdict.passed)


def _said(episode: Episode) -> str:
    if episode.verdict is None:
        return f"it could not be played: {episode.problem}"
    reward, details = f"reward {episode.verdict.reward:g}", episode.verdict.details
    if details.startswith(reward):  # a grader's own words on its own number
        return details
    return f"{reward} ({details})" if details else reward


def oracle_solves(played: Played) -> Finding:
    """Oracle scores 1"""
    solved = played.solved()
    if not solved:
        why = next(iter(played.no_oracle.values()), "no task is sure to be solved by its reference solution")
        return Finding("SKIP", why)
    wrong = {}
    for title, (episode, *_) in solved:
        verdict = episode.verdict
        if verdict is None or not verdict.passed or verdict.reward < 1 - 1e-9:
            refused = f", its action {episode.refused!r} was refused" if episode.refused else ""
            wrong[title] = f"{_said(episode)}{refused}"
    without = f"; {len(played.no_oracle)} without a solution" if played.no_oracle else ""
    turns = statistics.median(len(episodes[0].actions) for _, episodes in solved)
    return _result(wrong, f"{len(solved)} of {len(solved)} tasks, median {turns:g} turns{without}")


def idle_scores_nothing(played: Played) -> Finding:
    """Doing nothing scores 0"""
    wrong = {
        title: _said(episode)
        for title, (episode, *_) in played.idle.items()
        if episode.verdict is None or episode.verdict.passed or episode.verdict.reward > 0
    }
    return _result(wrong, f"on {len(played.idle)} tasks")


def chance_loses(played: Played) -> Finding:
    """Random actions below a bound"""
    plays = [(title, episode) for title, episodes in played.chance.items() for episode in episodes]
    if not plays:
        return Finding("SKIP", "no task that is sound so far, or no actions to draw from")
    broken = {title: _said(episode) for title, episode in plays if episode.verdict is None}
    passed = sum(episode.verdict.passed for _, episode in plays if episode.verdict is not None)
    share = f"{passed} of {len(plays)} episodes passed, at most {RANDOM_BOUND:.0%} allowed"
    return Finding("FAIL", share) if passed > RANDOM_BOUND * len(plays) else _result(broken, share)


def hacks_earn_nothing(played: Played) -> Finding:
    """Hacks earn nothing"""
    if played.subject.spec.sandbox is None:
        return Finding("SKIP", "no sandbox to try them in")
    if not played.hacked:
        return Finding("SKIP", "none was tried (--hacks N)")
    wrong = {}
    for title, episodes in played.hacked.items():
        bad = {
            name: "pays" if each.verdict else "got no grade"
            for name, each in episodes.items()
            if each.verdict is None or each.verdict.reward > 0
        }
        if bad:
            paying = sorted({kind_of(name) for name in bad})
            named = ", ".join(f"{name} {what}" for name, what in bad.items())
            wrong[title] = f"{len(bad)} of {len(episodes)} (classes: {', '.join(paying)}): {named}"
    tried = sum(map(len, played.hacked.values()))
    return _result(wrong, f"{tried} tried on {len(played.hacked)} tasks")


def honest_work_is_paid(played: Played) -> Finding:
    """Honest work is paid"""
    if not played.honest:
        return Finding("SKIP", "none was tried (--hacks N), or there is no solution to vary")
    wrong = {}
    for title, episodes in played.honest.items():
        bad = {
            name: _said(each)
            for name, each in episodes.items()
            if each.verdict is None or not each.verdict.passed
        }
        if bad:
            wrong[title] = (
                f"{len(bad)} of {len(episodes)}: {'; '.join(f'{name}: {what}' for name, what in bad.items())}"
            )
    if wrong and played.subject.tasks_by_name is not None:
        return Finding("WARN", _listed(wrong))  # a task may be about what lies in its box
    tried = sum(map(len, played.honest.values()))
    return _result(wrong, f"{tried} variants of the solution on {len(played.honest)} tasks")


def same_verdict(played: Played) -> Finding:
    """Same verdict every time"""
    certain = dict(played.solved())
    groups = [("doing nothing", title, episodes) for title, episodes in played.idle.items()]
    for title, episodes in played.oracle.items():
        groups.append(
            ("the solution", title, certain.get(title, episodes[:2]))
        )  # with luck, one seed's alone
    groups += [("the same actions", title, episodes) for title, episodes in played.explored.items()]
    # One that could not be played at all got no grade; another check says so.
    groups = [group for group in groups if len(group[2]) > 1 and any(map(_grade, group[2]))]
    if not groups:
        return Finding("SKIP", "no task that is sound so far")
    wrong = {
        title: f"{what} got {', then '.join(map(_said, episodes))}"
        for what, title, episodes in groups
        if len(set(map(_grade, episodes))) > 1
    }
    grades = sum(len(episodes) for _, _, episodes in groups)
    return _result(wrong, f"{grades} grades of {len(played.idle)} tasks, each in an episode of its own")


def same_observations(played: Played) -> Finding:
    """Same seed, same observations"""
    pairs = [(title, plays[0], plays[1]) for title, plays in played.pasts().items() if len(plays) > 1]
    if not played.subject.spec.replayable:
        return Finding("SKIP", "the environment says that it cannot be replayed")
    if not pairs:
        return Finding("SKIP", "no reference solution and no random actions to play twice")
    wrong = {title: apart for title, one, two in pairs if (apart := _apart(one, two))}
    return _result(wrong, f"{len(pairs)} tasks played twice, turn by turn")


def replay_continues(played: Played) -> Finding:
    """Replay continues as recorded"""
    if not played.replayed:
        return Finding("SKIP", "nothing that can be replayed")
    return _continued(played, played.replayed)


def snapshot_continues(played: Played) -> Finding:
    """Snapshot continues as recorded"""
    if not played.restored:
        return Finding("SKIP", played.no_snapshots or "nothing to make a snapshot of")
    return _continued(played, played.restored)


def _continued(played: Played, branches: Mapping[str, Episode]) -> Finding:
    wrong = {}
    for title, episode in branches.items():
        past = played.pasts()[title][0]
        if apart := _apart(past, episode):
            wrong[title] = apart
        elif _grade(past) != _grade(episode):
            wrong[title] = f"{_said(past)}, but continued from its middle {_said(episode)}"
    return _result(wrong, f"{len(branches)} tasks, each continued from its middle to the same grade")


def _apart(one: Episode, two: Episode) -> str:
    """Say where two episodes of the same actions first differ; nothing where they do not."""
    for episode in (one, two):
        if episode.problem:
            return f"it could not be played: {episode.problem}"
    pairs = zip((one.first, *one.observations), (two.first, *two.observations), strict=False)
    for turn, (first, second) in enumerate(pairs):
        if first != second:
            lines = next(
                ((a, b) for a, b in zip(first.splitlines(), second.splitlines(), strict=False) if a != b),
                (first[-80:], second[-80:]),
            )
            return f"observation {turn} differs: {lines[0][:100]!r}, then {lines[1][:100]!r}"
    return "" if len(one.observations) == len(two.observations) else "the episodes differ in length"


def no_leaks(played: Played) -> Finding:
    """Nothing gives the answer away"""
    if played.subject.spec.sandbox is None:
        return Finding("SKIP", "no sandbox to look into")
    scans = played.scans
    wrong = {title: "; ".join(scan.found[:_SHOWN]) for title, scan in scans.items() if scan.found}
    inputs = {title: "; ".join(scan.inputs[:_SHOWN]) for title, scan in scans.items() if scan.inputs}
    unseen = sorted({what for scan in scans.values() for what in scan.unseen})
    if not wrong and unseen:
        return Finding("SKIP", f"not looked at: {'; '.join(unseen[:_SHOWN])}")
    if not wrong and inputs:
        return Finding("WARN", f"the task's own input: {_listed(inputs)}")
    files = (
        "no file of a grader or solution" if played.subject.tasks_by_name else "grader and solution unknown"
    )
    return _result(wrong, f"{files}, no later git history, in {len(scans)} boxes")


def tests_need_no_network(played: Played) -> Finding:
    """Tests need no network"""
    known = played.subject.tasks_by_name
    if known is None:
        return Finding("SKIP", "how its tests run is not known")
    own = {played.subject.title(task): known.get(task.payload) for task in played.subject.tasks}
    asking = {title: task.verifier.download for title, task in own.items() if task and task.verifier.download}
    if asking:
        return Finding("WARN", f"the box has none, and the tests fetch: {_listed(asking)}")
    return Finding("PASS", f"on {len(own)} tasks, by what their scripts say")


def nothing_left(played: Played) -> Finding:
    """Nothing is left behind"""
    if played.subject.spec.sandbox is None:
        return Finding("SKIP", "no sandbox to leave behind")
    if played.left_behind:
        return Finding("FAIL", f"still there: {', '.join(played.left_behind)}")
    return Finding("PASS", "every sandbox of the check is gone")


def steps_are_quick(played: Played) -> Finding:
    """Step latency"""
    times = sorted(
        seconds for episodes in played.pasts().values() for episode in episodes for seconds in episode.step_s
    )
    if not times:
        return Finding("SKIP", "no step was made")
    median, slowest = statistics.median(times), times[-1]
    bound = SLOW_STEP_S[played.subject.spec.sandbox is not None]
    said = f"median of {len(times)}: {median * 1000:.1f} ms, slowest {slowest * 1000:.0f} ms"
    if median > bound:
        return Finding("FAIL", f"{said}, at most {bound:g} s allowed")
    return Finding("PASS", said)


CHECKS: tuple[Callable[[Played], Finding], ...] = (
    oracle_solves,
    idle_scores_nothing,
    chance_loses,
    hacks_earn_nothing,
    honest_work_is_paid,
    same_verdict,
    same_observations,
    replay_continues,
    snapshot_continues,
    no_leaks,
    tests_need_no_network,
    steps_are_quick,
    nothing_left,
)
"""In the order of the report; the first line of the docstring is the name there."""
