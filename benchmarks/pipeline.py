"""What `rollout.mode=pipeline` saves and keeps: by real runs of `ale train`, in turns with `rollout.mode=sync`.

    python -m benchmarks.pipeline [--quick] [--rounds N] [--kills N] [--skip PART ...]

The last line is one JSON object. `lockstep` and `eager`: `wall_ratio`, the wall time of the steps of `pipeline` with lag 1
over that of `sync` with the same staleness (the median over `ratios`, of pairs that ran one after the other), on `swe` with
tools that take a log-normal time (`benchmarks.slow_swe`), and by mode `steps_s`, `idle_share` (of the learner, and of the
rollouts) and `bound` (docs/timeline.md), medians too. `equal_weights`, by lag: two runs of `pipeline` on `swe` in lockstep
end with the weights of `sync` bit for bit. `kills`: by mode, runs that SIGKILL ends after a random line of the journal and
`--resume` continues (`amid_steps`: before the last was learned), rollouts `lost` and learned `twice` by the journal, and
how many runs end with the weights of an undisturbed one. `predicted`: by environment and mode, the mean step that `ale
simulate --from` gives for a recorded run of `sync` over that of the run itself, and of one in `pipeline` (goal: .85 to
1.15, or as far from 1 as `spread`, a second run of `sync` over the first). `--quick`: one short pair in lockstep, whose
weights are compared.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import msgspec

from benchmarks.runs import settings_words, train, train_rows
from benchmarks.scaffold import commit, finish, parser_of, say
from benchmarks.slow_swe import variables
from trainer.scheduler.journal import JOURNAL, audit, entries
from trainer.timeline import ROLES, TIMELINE, Span, bound_by, busy

MODES = ("sync", "pipeline")
SMALL = {"rollout.engines": 1, "rollout.workers": 1, "rollout.groups_per_step": 4, "rollout.group_size": 4}
SWE: dict[str, object] = {
    **SMALL,
    "rollout.batching": "lockstep",
    "algo_options.baseline": "none",
    "algo_options.reward_fail": -1,
    "optim.threads": 1,
    "eval.tasks": 1,
    "eval.apart_tasks": 1,
}
"""Over the recipe of `swe`: 16 rollouts a step, by its built-in model `coder`. Failures are learned, too, so that what is
sampled shows in the weights however seldom it succeeds."""
STEPS, TURNS, EXPERTS = 4, 8, 24
"""Learning steps, most tool calls of a rollout, and trajectories that each step imitates beside its rollouts."""
GAME: dict[str, object] = {
    **SMALL,
    "warmup.epochs": 2,
    "warmup.trajectories": 8,
    "eval.tasks": 4,
    "eval.every": 0,
    "checkpoint.every": 2,
}
"""Over the recipe of `frozen_lake`."""


def digest(run: Path) -> str:
    """Return the SHA-256 of a run's weights."""
    files = sorted((run / "model").glob("*.safetensors"))
    return hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()


class Swe:
    """Runs in `swe`, or in `slow_swe` with the very settings of its recipe."""

    def __init__(self, folder: Path, steps: int, turns: int, experts: int) -> None:
        self._folder, self._number = folder, 0
        site = folder / "site"
        site.mkdir()
        self.variables = variables(site)
        words = ["--env", "swe", "--algo", "ipa", "--seed", "3", "--steps", str(steps)]
        words += settings_words({**SWE, "agent.max_turns": turns})
        words += settings_words({"warmup.trajectories": experts, "anchors.inject": experts})
        command = [sys.executable, "-m", "ale", "train", *words, "--dry-run"]
        shown = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        for env in ("swe", "slow_swe"):
            (folder / f"{env}.toml").write_text(shown.replace('env = "swe"', f'env = "{env}"', 1))

    def run(self, env: str, mode: str, lag: int, **changes: object) -> Path:
        """Return the folder of a new run."""
        self._number += 1
        run = self._folder / f"{self._number}"
        rollout = {"mode": mode, "staleness": lag, **changes}
        more = settings_words({f"rollout.{name}": value for name, value in rollout.items()})
        words = ["--config", str(self._folder / f"{env}.toml"), *more]
        train(run, words, environment=self.variables)
        return run


def steps_of(run: Path) -> dict[str, Any]:
    """Return the seconds from the evaluation of the warm-up to the last publication, and who was idle and waited for."""
    spans = [msgspec.json.decode(line, type=Span) for line in (run / TIMELINE).read_bytes().splitlines()]
    begin_s = min(span.end_s for span in spans if span.role == "evaluation")
    end_s = max(span.end_s for span in spans if span.what == "publish")
    spans = [span for span in spans if span.role != "evaluation"]
    at_work, bound = busy(spans, begin_s, end_s), bound_by(spans, begin_s, end_s)
    idle = {role: 1 - at_work.get(role, 0.0) for role in ("learner", "environments")}
    return {
        "steps_s": end_s - begin_s,
        "idle_share": idle,
        "bound": {role: bound.get(role, 0.0) for role in ROLES},
    }


def medians(found: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the median of each number, in dicts too."""
    result: dict[str, Any] = {}
    for name in found[0]:
        values = [one[name] for one in found]
        nested = isinstance(values[0], dict)
        result[name] = medians(values) if nested else round(median(values), 3)
    return result


def wall(swe: Swe, batching: str, rounds: int) -> tuple[dict[str, Any], bool]:
    """Return what the modes took in turns, and whether all ended with the same weights."""
    found: dict[str, list[dict[str, Any]]] = {mode: [] for mode in MODES}
    weights = set()
    for number in range(rounds):
        for mode in MODES[:: -1 if number % 2 else 1]:
            run = swe.run("slow_swe", mode, 1, batching=batching)
            found[mode].append(steps_of(run))
            weights.add(digest(run))
            say(f"{batching} {mode}: {found[mode][-1]}, load {os.getloadavg()[0]:.1f}, {digest(run)[:8]}")
    pairs = zip(found["pipeline"], found["sync"], strict=True)
    ratios = [pipeline["steps_s"] / sync["steps_s"] for pipeline, sync in pairs]
    told = {"wall_ratio": round(median(ratios), 3), "ratios": [round(ratio, 3) for ratio in ratios]}
    return {**told, **{mode: medians(own) for mode, own in found.items()}}, len(weights) == 1


def equal(swe: Swe, lag: int) -> bool:
    """Return whether two pipelined runs end with the weights of a synchronous one."""
    found = [digest(swe.run("swe", mode, lag)) for mode in ("sync", "pipeline", "pipeline")]
    say(f"lag {lag}: {found}")
    return len(set(found)) == 1


def lines(run: Path) -> int:
    """Return how many lines the journal of a run has."""
    return (run / JOURNAL).read_bytes().count(b"\n") if (run / JOURNAL).exists() else 0


def killed(folder: Path, mode: str, count: int, steps: int, seed: int = 0) -> dict[str, int]:
    """Kill so many runs at random moments, and return what became of them."""
    words = ["--env", "frozen_lake", "--algo", "ipa", "--seed", "7", "--steps", str(steps)]
    words += settings_words({**GAME, "rollout.mode": mode, "rollout.staleness": 1})
    whole, chance = folder / f"{mode}-whole", random.Random(f"{mode} {seed}")
    if not whole.exists():
        train(whole, words)
    written = lines(whole)
    result = {"kills": count, "amid_steps": 0, "lost": 0, "twice": 0, "ends_equal": 0}
    for number in range(count):
        run = folder / f"{mode}-{number}"
        command = [sys.executable, "-m", "ale", "train", "--run", str(run), "--quiet", *words]
        with subprocess.Popen(command, env={**os.environ, "OMP_NUM_THREADS": "1"}) as process:
            until = chance.randrange(1, written)
            while lines(run) < until and process.poll() is None:
                time.sleep(0.01)
            time.sleep(chance.random() / 2)
            process.kill()  # with SIGKILL
        result["amid_steps"] += process.returncode < 0 and lines(run) < written
        train(run, ["--resume"])
        found = audit(entries(run / JOURNAL))
        result["lost"] += len(found.lost)
        result["twice"] += len(found.twice)
        result["ends_equal"] += digest(run) == digest(whole)
        say(f"{mode}: {result}")
    return result


def step_s(run: Path) -> float:
    """Return the mean of the steps after the first, whose time holds the warm-up."""
    took_s = [row["train_s"] for row in train_rows(run)]
    return float(took_s[-1] - took_s[0]) / (len(took_s) - 1)


def predicted(runs: Mapping[str, Path], again: Path, environment: Mapping[str, str]) -> dict[str, float]:
    """Return what the recorded run of `sync` lets one expect of each mode over what its run took."""
    found = {"spread": step_s(again) / step_s(runs["sync"])}
    for mode, run in runs.items():
        words = ["simulate", "--from", str(runs["sync"]), "-s", f"rollout.mode={mode}", "--json"]
        command = [sys.executable, "-m", "ale", *words]
        told = subprocess.run(
            command, env={**os.environ, **environment}, stdout=subprocess.PIPE, check=True
        ).stdout
        found[mode] = json.loads(told)["step_s"]["mean"] / step_s(run)
    say(f"predicted {found}")
    return {name: round(ratio, 3) for name, ratio in found.items()}


def predictions(swe: Swe, folder: Path) -> dict[str, dict[str, float]]:
    """Return `predicted` of a run in each of three environments."""
    found, lag = {}, {"rollout.staleness": 1}
    for env in ("frozen_lake", "fork_chain"):
        runs = {name: folder / f"{env}-{name}" for name in ("sync", "pipeline", "again")}
        for name, run in runs.items():
            mode = {"rollout.mode": "sync" if name == "again" else name}
            words = ["--env", env, "--algo", "ipa", "--seed", "7", "--steps", "12"]
            train(run, [*words, *settings_words({"eval.every": 0, **lag, **mode})])
        found[env] = predicted({mode: runs[mode] for mode in MODES}, runs["again"], {})
    found["slow_swe"] = predicted(
        {mode: swe.run("slow_swe", mode, 1) for mode in MODES}, swe.run("slow_swe", "sync", 1), swe.variables
    )
    return found


def main() -> int:
    parser = parser_of(__doc__, quick="one short pair in lockstep")
    parser.add_argument("--rounds", type=int, default=3, help="pairs of runs of each batching")
    parser.add_argument("--kills", type=int, default=20, help="of both modes together")
    parser.add_argument("--skip", nargs="+", default=[], choices=("wall", "equal", "kills", "predicted"))
    options = parser.parse_args()
    found: dict[str, Any] = {"commit": commit()}
    with tempfile.TemporaryDirectory(prefix="ale-pipeline-") as name:
        folder = Path(name)
        if options.quick:
            found["lockstep"], same = wall(Swe(folder, 3, 4, 8), "lockstep", 1)
            return finish({**found, "equal_weights": {1: same}})
        swe = Swe(folder, STEPS, TURNS, EXPERTS)
        if "wall" not in options.skip:
            for batching in ("lockstep", "eager"):
                found[batching], _ = wall(swe, batching, options.rounds)
        if "equal" not in options.skip:
            found["equal_weights"] = {lag: equal(swe, lag) for lag in (1, 2)}
        if "predicted" not in options.skip:
            found["predicted"] = predictions(swe, folder)
        if "kills" not in options.skip:
            found["kills"] = {mode: killed(folder, mode, options.kills // 2, 8) for mode in MODES}
    return finish(found)


if __name__ == "__main__":
    sys.exit(main())
