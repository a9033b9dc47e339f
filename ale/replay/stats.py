"""`ale replay stats`: what the rollouts of a run come to, why they ended, what became of their tokens, and what was slow.

Reads only. The ledger is the run's own (`metrics.jsonl`), and it is held against the tokens of the records.
"""

from __future__ import annotations

import heapq
import json
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from agent_runtime.types import Trajectory, TurnLabel
from ale.replay.places import KINDS, in_order, kind_of
from ale.replay.records import iterate, why_contexts_begin_anew
from ale.terminal import print_table, stdout
from ale.training import runs
from ale.training.reading import read_metrics

__all__ = ["Statistics", "collect", "ledger", "stats_command"]

SLOWEST = 5
_SHOWN = 60
"""Characters of an action."""
_OURS_ELSEWHERE = ("tokens/experts", "tokens/reused")
"""What the ledger counts and no rollout of the step sampled."""


@dataclass(slots=True)
class Kind:
    """The rollouts of one kind of file: `step`, `eval`, `expert`."""

    rollouts: int = 0
    passed: int = 0
    failed: int = 0
    turns: int = 0
    tokens: int = 0
    """Sampled, those of a failed step included."""
    sampling_s: float = 0.0
    stepping_s: float = 0.0
    rollout_s: float = 0.0


@dataclass(slots=True)
class Phase:
    """One part of rollouts beside their turns."""

    total_s: float = 0.0
    longest_s: float = 0.0
    longest: str = ""
    """The id of the rollout that took longest."""

    def add(self, seconds: float, identity: str) -> None:
        """Count one rollout."""
        self.total_s += seconds
        if seconds > self.longest_s:
            self.longest_s, self.longest = seconds, identity


@dataclass(slots=True)
class Statistics:
    """Counts over trajectories; each failure with the id of the first rollout that had it."""

    kinds: dict[str, Kind] = field(default_factory=lambda: defaultdict(Kind))
    ends: Counter[str] = field(default_factory=Counter)
    failures: dict[str, list[Any]] = field(default_factory=dict)
    faults: Counter[str] = field(default_factory=Counter)
    labels: Counter[str] = field(default_factory=Counter)
    slowest: list[tuple[float, str, int]] = field(default_factory=list)
    """(seconds, id, turns), the slowest first."""
    slowest_turns: list[tuple[float, str, int, str]] = field(default_factory=list)
    """(seconds of the environment, id, turn, action), the slowest first."""
    phases: dict[str, Phase] = field(default_factory=lambda: defaultdict(Phase))
    """Making, resetting and grading, where the records tell of them."""
    contexts: Counter[str] = field(default_factory=Counter)
    """By label, turns that began a context anew although their rollout had one, not after a summary of it, and its settings
    let it grow."""


def collect(records: Iterable[tuple[Path, Trajectory]], into: Statistics) -> None:
    """Count `records`; what was counted stays where one of them cannot be read."""
    for path, trajectory in records:
        _count(into.kinds[kind_of(path)], trajectory)
        into.ends[str(trajectory.stop_reason)] += 1
        if trajectory.failure is not None:
            into.failures.setdefault(trajectory.failure.code, [0, trajectory.id])[0] += 1
        into.faults.update(str(fault) for fault in trajectory.turn_faults if fault)
        into.labels.update(map(str, trajectory.turn_labels))
        entry = (trajectory.duration_s, trajectory.id, len(trajectory.turns))
        into.slowest = heapq.nlargest(SLOWEST, [*into.slowest, entry])
        _count_turns(trajectory, into)


def _count_turns(trajectory: Trajectory, into: Statistics) -> None:
    actions = trajectory.actions or ("",) * len(trajectory.turns)
    turns = [
        (turn.stepped_s, trajectory.id, turn.index, action)
        for turn, action in zip(trajectory.turns, actions, strict=False)
        if turn.stepped_s
    ]
    into.slowest_turns = heapq.nlargest(SLOWEST, [*into.slowest_turns, *turns])
    into.contexts.update(
        str(trajectory.label(turn.index))
        for turn in trajectory.turns[1:]
        if turn.parent is None and trajectory.label(turn.index - 1) is not TurnLabel.SUMMARY
    )
    if hosting := trajectory.hosting:
        for name in ("made", "reset", "graded"):
            into.phases[name].add(getattr(hosting, f"{name}_s"), trajectory.id)


def _count(kind: Kind, trajectory: Trajectory) -> None:
    kind.rollouts += 1
    kind.passed += trajectory.passed and trajectory.has_reward
    kind.failed += not trajectory.has_reward
    kind.turns += len(trajectory.turns)
    kind.tokens += trajectory.sampled_tokens + trajectory.lost_tokens
    kind.sampling_s += sum(turn.sampled_s for turn in trajectory.turns)
    kind.stepping_s += sum(turn.stepped_s for turn in trajectory.turns)
    kind.rollout_s += trajectory.duration_s


def ledger(where: str) -> dict[str, float]:
    """Return what became of a run's tokens, by the names after `tokens/`, over all its steps; nothing for no run.

    Raise `RecordError` for metrics that cannot be read.
    """
    folder = next(
        (place for place in (Path(where), runs.locate(where)) if (place / "metrics.jsonl").is_file()), None
    )
    if folder is None:
        return {}
    sums: Counter[str] = Counter()
    for record in read_metrics(folder):
        if record["kind"] == "train":
            sums.update({name: value for name, value in record.items() if name.startswith("tokens/")})
    return dict(sums)


def stats_command(where: str, *, as_json: bool) -> None:
    """Print the statistics of a run, folder or file. Raise `RecordError` or `StoreError` after what could be read."""
    found, fates = Statistics(), ledger(where)
    try:
        collect(iterate(where), found)
    finally:
        if why := why_contexts_begin_anew(where):
            found.contexts.clear()
        if found.kinds and as_json:
            sys.stdout.write(f"{json.dumps(_json(found, fates), indent=1)}\n")
        elif found.kinds:
            _print(found, fates, why)


def _json(found: Statistics, fates: Mapping[str, float]) -> dict[str, Any]:
    names = Kind.__slots__
    return {
        "kinds": {
            kind: {name: getattr(counts, name) for name in names} for kind, counts in found.kinds.items()
        },
        "ends": dict(found.ends),
        "failures": {code: {"rollouts": n, "first": first} for code, (n, first) in found.failures.items()},
        "turn_faults": dict(found.faults),
        "turn_labels": dict(found.labels),
        "slowest": [
            {"id": name, "duration_s": seconds, "turns": turns} for seconds, name, turns in found.slowest
        ],
        "slowest_turns": [
            {"id": name, "turn": turn, "stepped_s": seconds, "action": action}
            for seconds, name, turn, action in found.slowest_turns
        ],
        "phases": {name: asdict(phase) for name, phase in found.phases.items()},
        "contexts_anew": dict(found.contexts),
        "tokens": {name.removeprefix("tokens/"): value for name, value in fates.items()},
    }


def _print(found: Statistics, fates: Mapping[str, float], why: str) -> None:
    heads = ("kind", "rollouts", "passed", "errored", "turns", "tokens", "sampling", "environment", "in all")
    kinds = [_row(KINDS.get(kind, kind), found.kinds[kind]) for kind in in_order(found.kinds)]
    print_table(heads, kinds, least=("in all", "environment", "sampling"))
    _section("ended by", ("reason", "rollouts"), [(end, str(n)) for end, n in found.ends.most_common()])
    failures = [(code, str(n), first) for code, (n, first) in sorted(found.failures.items())]
    _section("errored", ("failure", "rollouts", "first"), failures)
    for title, counts in (
        ("turns with a fault", found.faults),
        ("turns by label", found.labels),
        ("turns that began their context anew", found.contexts),
    ):
        _section(title, ("what", "turns"), [(name, str(n)) for name, n in counts.most_common()])
    if why:
        stdout().print(f"\n{why}")
    slow = [(f"{seconds:.2f} s", name, str(turns)) for seconds, name, turns in found.slowest]
    _section("slowest", ("time", "id", "turns"), slow)
    acts = [
        (f"{seconds:.2f} s", name, str(turn), _first_line(action))
        for seconds, name, turn, action in found.slowest_turns
    ]
    _section("slowest in the environment", ("time", "id", "turn", "action"), acts)
    parts = [
        (name, f"{phase.total_s:.2f} s", f"{phase.longest_s:.2f} s", phase.longest)
        for name, phase in found.phases.items()
    ]
    _section("beside the turns", ("what", "in all", "longest", "id"), parts)
    _print_ledger(found, fates)


def _first_line(action: str) -> str:
    line = action.partition("\n")[0]
    return line if len(line) <= _SHOWN else f"{line[:_SHOWN]}…"


def _row(kind: str, counts: Kind) -> tuple[str, ...]:
    whole = counts.rollout_s or 1.0
    return (
        kind,
        str(counts.rollouts),
        str(counts.passed),
        str(counts.failed),
        str(counts.turns),
        str(counts.tokens),
        f"{counts.sampling_s / whole:.0%}",
        f"{counts.stepping_s / whole:.0%}",
        f"{counts.rollout_s:.1f} s",
    )


def _section(title: str, heads: tuple[str, ...], rows: Sequence[Sequence[str]]) -> None:
    if rows:
        stdout().print(f"\n{title}")
        print_table(heads, rows)


def _print_ledger(found: Statistics, fates: Mapping[str, float]) -> None:
    if not fates:
        return
    total = fates["tokens/total"] or 1.0
    rows = [
        (name.removeprefix("tokens/"), f"{value:.0f}", f"{value / total:.1%}")
        for name, value in sorted(fates.items(), key=lambda item: -item[1])
        if value
    ]
    _section("what became of the steps' tokens", ("fate", "tokens", "share"), rows)
    ours = fates["tokens/total"] - sum(fates.get(name, 0.0) for name in _OURS_ELSEWHERE)
    sampled = found.kinds["step"].tokens if "step" in found.kinds else 0
    verdict = (
        "as many" if ours == sampled else "NOT as many: files are missing, or tokens are unaccounted for"
    )
    stdout().print(
        f"The ledger accounts for {ours:.0f} sampled tokens, the records hold {sampled}: {verdict}."
    )
