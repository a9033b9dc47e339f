"""What each part of a recipe is worth: today's recipes against the same without it, on seeds that chose none of them.

    python -m benchmarks.arms [--quick] [--env ENV ...] [--arms NAME ...] [--seeds N] --raw RAW.jsonl [--report]

What is compared, and by which number, was fixed before any result: `ARMS` below and docs/results/arms.md. All arms of a
seed begin with the same experts and warm-up and take as many updates. Every finished run appends one line to RAW; a run that
failed appends its error, has no success, and is tried again next time. `--report` runs nothing. `--quick` runs one seed of
two arms for eight steps. The last line is one JSON object: environment -> `arms` (arm -> held-out success by seed),
`differences` (arm -> IPA minus it over the seeds that have both: mean, low and high of a 95 % bootstrap interval, and
pairs) and `equal_env_steps` (the same where IPA is read at the environment steps with which the arm ended).
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.runs import run_training
from benchmarks.scaffold import commit, finish, markdown_table, parser_of
from benchmarks.statistics import mean_interval, success_at

FIRST_SEED = {"fork_chain": 400, "frozen_lake": 400, "sokoban": 410}
ONE = ("-s", "rollout.workers=1", "-s", "rollout.engines=1")
STALE = ("-s", "rollout.staleness=8")
NO_RL = ("-s", "algo_options.lambda_rl=0")
BESIDE = ("-s", "algo_options.lambda_il=0.1")
RESETS = ("-s", "anchors.scheduler=sequential", "-s", "anchors.start_share=0.25")

IPA, GRPO = ("--algo", "ipa"), ("--algo", "grpo", *BESIDE)
ARMS: dict[str, dict[str, tuple[str, ...]]] = {
    "fork_chain": {
        "ipa": IPA,
        "reinforce": ("--algo", "reinforce", *BESIDE),
        "ipa-rl0": (*IPA, *NO_RL),
        "ipa+resets": (*IPA, *RESETS),
        "grpo+resets": (*GRPO, *RESETS),
        "ipa@8": (*IPA, *STALE),
        "grpo@8": (*GRPO, *STALE),
    },
    "frozen_lake": {
        "ipa": IPA,
        "grpo": GRPO,
        "ipa-rl0": (*IPA, *NO_RL),
        "ipa+resets": (*IPA, *RESETS),
        "grpo+resets": (*GRPO, *RESETS),
        "bc": ("--algo", "bc", "--steps", "400"),
    },
    "sokoban": {
        "ipa": IPA,
        "grpo": GRPO,
        "bc": ("--algo", "bc", "--steps", "120"),
        "ipa@8": (*IPA, *STALE),
        "grpo@8": (*GRPO, *STALE),
    },
}

LONGEST_ERROR = 2000
"""Characters of a failed run's output that its line keeps."""

Line = dict[str, Any]
Key = tuple[str, str, int]
"""Environment, arm and seed."""
Job = tuple[str, str, int, list[str]]


def jobs(envs: Sequence[str], arms: Sequence[str], seeds: int, extra: Sequence[str] = ()) -> Iterator[Job]:
    """Yield what to run, whole seeds first, so that a part of it is already a comparison."""
    for number in range(seeds):
        for env in envs:
            seed = FIRST_SEED[env] + number
            for arm, arguments in ARMS[env].items():
                if not arms or arm in arms:
                    yield env, arm, seed, ["--env", env, *arguments, *ONE, *extra]


def measure(env: str, arm: str, seed: int, arguments: Sequence[str]) -> Line:
    """Run once and return the raw line; a run that fails is a line with `error` and without `curve`."""
    line: Line = {"env": env, "method": arm, "seed": seed, "arguments": list(arguments), "commit": commit()}
    try:
        lag = ["-s", "rollout.allow_uncorrected_lag=true"]  # is what is compared
        summary = run_training([*arguments, *lag, "--seed", str(seed)])
    except RuntimeError as error:
        return {**line, "error": _portable(str(error))[-LONGEST_ERROR:]}
    curve = [[record["env_steps"], record["success"]] for record in summary["curve"]]
    kept = ("success_warmup", "success_final", "optimum", "env_steps", "tokens", "steps", "train_s")
    line |= {name: summary[name] for name in kept}
    return {**line, "curve": curve, "apart_warmup": summary["apart_warmup"], "apart": summary["apart_final"]}


def _portable(text: str) -> str:
    """Return the text without this machine's folders."""
    for path, name in ((sys.prefix, "PYTHON"), (str(Path.cwd()), "."), (tempfile.gettempdir(), "TMP")):
        text = text.replace(path, name)
    return text


def read_raw(path: Path) -> list[Line]:
    """Return the lines of a raw file but for the torn last one of a killed run. Raise `ValueError` on another bad line."""
    data = path.read_bytes()
    return [json.loads(line) for line in data[: data.rfind(b"\n") + 1].splitlines()]


def finished(lines: Sequence[Line]) -> dict[Key, Line]:
    """Return the runs that ended; of several the last."""
    return {(line["env"], line["method"], line["seed"]): line for line in lines if "curve" in line}


def run_all(work: Sequence[Job], raw: Path) -> list[Line]:
    """Do what `raw` does not hold yet, and return the lines that count, in the order of `work`.

    A line is appended as its run ends. Raise `ValueError` where `raw` holds a run with other arguments: two experiments do
    not share a file.
    """
    raw.parent.mkdir(parents=True, exist_ok=True)
    if raw.exists():
        os.truncate(raw, raw.read_bytes().rfind(b"\n") + 1)  # a killed run leaves half a line
    known = read_raw(raw) if raw.exists() else []
    asked = {job[:3]: job[3] for job in work}
    for line in known:
        expected = asked.get(key := (line["env"], line["method"], line["seed"]), line["arguments"])
        if line["arguments"] != expected:
            raise ValueError(
                f"{raw} holds {' '.join(map(str, key))} with arguments {line['arguments']}, expected {expected}: "
                "name the file of the experiment that it belongs to, or begin another"
            )
    done = finished(known)
    for number, job in enumerate(work, start=1):
        if job[:3] in done:
            continue
        line = done[job[:3]] = measure(*job)
        with raw.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")
        ended = (
            f"{line['success_warmup']:.3f} -> {line['success_final']:.3f}" if "curve" in line else "FAILED"
        )
        print(f"{number}/{len(work)} {line['env']} {line['method']} seed {line['seed']}: {ended}", flush=True)
    return [done[job[:3]] for job in work]


def differences(of_arm: Mapping[str, Mapping[int, Line]], *, equal_env_steps: bool) -> dict[str, list[float]]:
    """Return arm -> IPA minus it: the mean over the seeds of both, its interval's ends, and how many they are.

    With `equal_env_steps` IPA's success is read, linearly between its evaluations, where the arm's environment steps ended;
    a seed in which IPA ended before, or the arm took none, is left out.
    """
    ipa, found = of_arm.get("ipa", {}), {}
    for arm, lines in of_arm.items():
        values = []
        for seed in sorted(set(ipa) & set(lines)) if arm != "ipa" else ():
            reached = ipa[seed]["success_final"]
            if equal_env_steps:
                taken = lines[seed]["env_steps"]
                reached = success_at(ipa[seed]["curve"], taken) if taken else None  # imitation takes none
            if reached is not None:
                values.append(reached - lines[seed]["success_final"])
        if len(values) > 1:
            found[arm] = [*mean_interval(values).rounded(), len(values)]
    return found


def summarise(lines: Sequence[Line]) -> dict[str, dict[str, Any]]:
    """Return what the last line prints, of the runs that ended."""
    of_env: dict[str, dict[str, dict[int, Line]]] = {}
    for (env, arm, seed), line in finished(lines).items():
        of_env.setdefault(env, {}).setdefault(arm, {})[seed] = line
    return {
        env: {
            "arms": {
                arm: {seed: round(line["success_final"], 4) for seed, line in sorted(lines.items())}
                for arm, lines in of_arm.items()
            },
            "differences": differences(of_arm, equal_env_steps=False),
            "equal_env_steps": differences(of_arm, equal_env_steps=True),
        }
        for env, of_arm in of_env.items()
    }


def table(found: Mapping[str, Any]) -> str:
    """Return one environment's table: a row for each arm."""
    seeds = sorted({seed for values in found["arms"].values() for seed in values})
    rows = []
    for arm, values in found["arms"].items():
        mean = sum(values.values()) / len(values)
        cells = [f"{values[seed]:.3f}" if seed in values else "–" for seed in seeds]
        between = [
            f"{numbers[0]:.3f} [{numbers[1]:.3f}, {numbers[2]:.3f}]" if numbers else "–"
            for numbers in (found["differences"].get(arm), found["equal_env_steps"].get(arm))
        ]
        rows.append([f"`{arm}`", *cells, f"{mean:.3f}", *between])
    header = [
        "arm",
        *map(str, seeds),
        "mean",
        "IPA − arm, equal updates",
        "IPA − arm, equal environment steps",
    ]
    return markdown_table(header, rows)


def main() -> None:
    parser = parser_of(__doc__, quick="one seed, two arms, eight steps, at most 50 s")
    parser.add_argument("--env", nargs="+", choices=sorted(ARMS), default=["fork_chain"])
    parser.add_argument("--arms", nargs="+", default=[], metavar="NAME", help="of ARMS; else all")
    parser.add_argument("--seeds", type=int, default=8)
    parser.add_argument("--raw", type=Path, help="the file that runs append to and are read from")
    parser.add_argument("--report", action="store_true", help="run nothing, report what RAW holds")
    options = parser.parse_args()
    if unknown := set(options.arms) - {arm for env in options.env for arm in ARMS[env]}:
        known = ", ".join(sorted({arm for env in options.env for arm in ARMS[env]}))
        parser.error(f"no arm {', '.join(sorted(unknown))} in {', '.join(options.env)}; there are {known}")
    if options.quick:
        short = ("--steps", "8", "-s", "warmup.epochs=2", "-s", "eval.every=4")
        with tempfile.TemporaryDirectory() as folder:
            lines = run_all(list(jobs(["frozen_lake"], ["ipa", "ipa-rl0"], 1, short)), Path(folder) / "raw")
    elif options.raw is None:
        parser.error("--raw RAW.jsonl is needed: runs are kept there")
    elif options.report:
        lines = read_raw(options.raw)
    else:
        lines = run_all(list(jobs(options.env, options.arms, options.seeds)), options.raw)
    found = summarise(lines)
    for env, one in found.items():
        print(f"## {env}\n\n{table(one)}\n", flush=True)
    finish(found)


if __name__ == "__main__":
    main()
