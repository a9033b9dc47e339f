"""The pre-registered comparison: IPA, the other algorithms and imitation, each with and without the same resets.

    python -m benchmarks.ipa [--quick] [--env ENV] [--methods core|all|NAME] [--seeds 5] [--jobs 2] [--write]
                             [--resume RAW.jsonl [--report]]

What is compared, by which number, and what would count as support was fixed before any result: the constants below, and
docs/results/ipa-preregistration.md, which says why. Every finished run appends one line to the raw file; a run that failed
appends its error, has no success, and is tried again by `--resume`. `--jobs` runs so many at once; `--report` runs none and
reports what the raw file holds of what was asked. `--quick` runs one seed of three methods on fork_chain. The last
line printed is one JSON object: environment -> table, differences and hypotheses. A method's name ends in `@L` where every
batch is sampled with the weights of L steps ago (`rollout.staleness`).
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import Any

from benchmarks.ipa_report import STALENESS, draw, page, summarise
from benchmarks.runs import run_training, settings_words
from benchmarks.scaffold import commit, finish, parser_of, write_results

ALGORITHMS = (
    *("ipa", "grpo", "reinforce", "rloo", "reinforce_pp", "dr_grpo", "dapo", "decoupled_ppo"),
    *("ppo", "gspo", "cispo", "topr", "gigpo", "starpo", "step_reinforce"),
)
IPA = ["-s", "algo_options.baseline=leave_one_out", "-s", "algo_options.learn_faulty=true"]
RESETS = ["-s", "anchors.scheduler=sequential", "-s", "anchors.start_share=0.25"]
NO_RESETS = ["-s", "anchors.scheduler=none"]
BESIDE, ALONE = ["-s", "algo_options.lambda_il=0.1"], ["-s", "anchors.inject=0"]
STALE = ("ipa+resets", "ipa-gamma0.7+resets", "grpo+resets", "reinforce+resets")
"""The methods that run at every staleness: those of the hypothesis on it, and their controls."""
FIRST_SEED = 100
"""Recipes were chosen on seeds from 0: these are fresh."""
RAW = Path("docs/results/ipa.jsonl")
LONGEST_ERROR = 2000  # characters of a failed run's output that its line keeps


@dataclass(frozen=True, slots=True)
class Setting:
    """What is the same for every method of one environment; a run from resets plays shorter episodes, so more steps."""

    budget: int
    """Environment steps at which methods are compared; those of a replayed prefix are not among them."""
    steps: int
    steps_resets: int
    every: int
    """Learning steps between evaluations; twice as many with resets."""
    tasks: int
    """Held-out tasks of every evaluation."""
    engines: int = 1
    """Inference engines, and as many rollout workers. One of each fills a core, and starts in less of its time."""
    ipa: tuple[str, ...] = ()
    """Takes back what the recipe sets for IPA alone and the registration rules out: nothing is tuned per method."""


SETTINGS = {
    "fork_chain": Setting(budget=70_000, steps=24, steps_resets=40, every=6, tasks=300),
    "sokoban": Setting(budget=400_000, steps=120, steps_resets=240, every=20, tasks=300),
    "swe": Setting(
        budget=12_000,
        steps=12,
        steps_resets=24,
        every=3,
        tasks=64,
        engines=2,
        ipa=("-s", "algo_options.neg_weight=0"),
    ),
}
RECIPES = {
    "fork_chain": ("-s", "warmup.epochs=12", "-s", "optim.minibatches=4"),
    "swe": ("-s", "eval.apart_tasks=0", "--env-arg", "command_timeout_s=60"),
}
"""What was the recipe's when the comparison was registered, and is not any more."""
SUPERSEDED = """\
**Superseded for `fork_chain`.** Its recipe of that time, which this comparison keeps, had four updates a batch and twelve
passes of warm-up: too few updates to learn the task by any method, so that its rows compare failures. What the default
recipes reach, beside imitation with as many updates, is in [over-imitation](over-imitation.md), and with more experts in
[many-walks](many-walks.md)."""
"""What stands above the results, so that no reader takes them for today's."""
QUICK = Setting(budget=4_000, steps=4, steps_resets=8, every=2, tasks=50)


def _methods() -> dict[str, list[str]]:
    """Return method -> arguments. All begin with the same experts, weights and warm-up (of one seed)."""
    found: dict[str, list[str]] = {"bc": ["--algo", "bc", *NO_RESETS]}
    arms = {name: ["--algo", name, *(IPA if name == "ipa" else []), *BESIDE] for name in ALGORITHMS}
    arms["ipa"] += ["-s", "algo_options.gamma=0.95"]
    arms["ipa-gamma0.7"] = ["--algo", "ipa", *IPA, *BESIDE, "-s", "algo_options.gamma=0.7"]
    arms["bc-grpo"] = ["--algo", "grpo", *ALONE]
    arms["bc-ipa"] = ["--algo", "ipa", *IPA, "-s", "algo_options.gamma=0.95", *ALONE]
    for name, arguments in arms.items():
        found[name] = [*arguments, *NO_RESETS]
        found[f"{name}+resets"] = [*arguments, *RESETS]
    for name in STALE:
        for lag in STALENESS:
            found[f"{name}@{lag}"] = [*found[name], "-s", f"rollout.staleness={lag}"]
    return found


METHODS = _methods()
CORE = tuple(
    ["bc"]
    + [
        name + resets
        for name in ("ipa", "ipa-gamma0.7", "grpo", "reinforce", "bc-grpo", "bc-ipa")
        for resets in ("", "+resets")
    ]
    + [f"{name}@{lag}" for name in STALE for lag in STALENESS]
)
"""The methods of the three hypotheses and their controls; they run first. RL+BC is `grpo`: imitation beside RL."""


def arguments_of(env: str, method: str, setting: Setting) -> list[str]:
    """Return the arguments of `ale train` for a method, without the seed."""
    resets = "+resets" in method
    sizes = {
        "eval.every": setting.every * (2 if resets else 1),
        "eval.tasks": setting.tasks,
        "eval.progress_tasks": setting.tasks,
        "rollout.workers": setting.engines,
        "rollout.engines": setting.engines,
    }
    steps = setting.steps_resets if resets else setting.steps
    own = setting.ipa if "ipa" in METHODS[method] else ()
    return ["--env", env, "--steps", str(steps), *settings_words(sizes), *METHODS[method], *own]


def measure(
    env: str, method: str, seed: int, arguments: Sequence[str], recipes: Mapping[str, Sequence[str]] = RECIPES
) -> dict[str, Any]:
    """Run once and return the raw line; a run that fails is a line with `error` and without `curve`.

    `recipes` holds, by environment, arguments that are added to the line's own and not kept in it.
    """
    line: dict[str, Any] = {"env": env, "method": method, "seed": seed, "arguments": list(arguments)}
    line["commit"] = commit()
    try:
        lag = ["-s", "rollout.allow_uncorrected_lag=true"]  # is what is compared
        summary = run_training([*arguments, *lag, *recipes.get(env, ()), "--seed", str(seed)])
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


def read_raw(path: Path) -> list[dict[str, Any]]:
    """Return the lines of a raw file but for the torn last one of a killed run. Raise `ValueError` on another bad line."""
    data = path.read_bytes()
    return [json.loads(line) for line in data[: data.rfind(b"\n") + 1].splitlines()]


def finished(lines: Sequence[dict[str, Any]]) -> dict[tuple[str, str, int], dict[str, Any]]:
    """Return the runs that ended, by environment, method and seed; of several the last."""
    return {(line["env"], line["method"], line["seed"]): line for line in lines if "curve" in line}


def jobs(
    envs: Sequence[str], methods: Sequence[str], seeds: int, setting: Setting | None
) -> Iterator[tuple[str, str, int, list[str]]]:
    """Yield what to run, core methods and whole seeds first, so that a part of it is already a comparison."""
    ordered = [name for name in CORE if name in methods] + [name for name in methods if name not in CORE]
    for env in envs:
        for seed in range(FIRST_SEED, FIRST_SEED + seeds):
            for method in ordered:
                yield env, method, seed, arguments_of(env, method, setting or SETTINGS[env])


def run_all(
    work: Sequence[tuple[str, str, int, list[str]]],
    raw: Path,
    *,
    at_once: int = 1,
    recipes: Mapping[str, Sequence[str]] = RECIPES,
) -> list[dict[str, Any]]:
    """Do what `raw` does not hold yet, `at_once` runs side by side, and return the lines that count, in the order of `work`.

    A line is appended as its run ends. Raise `ValueError` where `raw` holds a run with other arguments: two experiments do
    not share a file.
    """
    raw.parent.mkdir(parents=True, exist_ok=True)
    if raw.exists():
        os.truncate(raw, raw.read_bytes().rfind(b"\n") + 1)  # a killed run leaves half a line
    done = {key: line for key, line in _known(work, raw).items() if "curve" in line}
    missing = [each for each in work if each[:3] not in done]
    writing = Lock()

    def run(job: tuple[str, str, int, list[str]]) -> dict[str, Any]:
        line = measure(*job, recipes)
        with writing, raw.open("a", encoding="utf-8") as file:  # here, so that no other run's error loses it
            file.write(json.dumps(line) + "\n")
        return line

    pool = ThreadPoolExecutor(at_once)
    try:
        running = {pool.submit(run, each): each[:3] for each in missing}
        for number, ended in enumerate(as_completed(running), start=len(work) - len(missing) + 1):
            line = done[running[ended]] = ended.result()
            print(f"{number}/{len(work)} {_said(line)}", flush=True)
    finally:
        pool.shutdown(cancel_futures=True)
    return [done[each[:3]] for each in work]


def recorded(work: Sequence[tuple[str, str, int, list[str]]], raw: Path) -> list[dict[str, Any]]:
    """Return the lines of `raw` that count, in the order of `work`: of each run the last that ended or, if none did, failed.

    Raise `ValueError` where `raw` holds a run with other arguments.
    """
    found = _known(work, raw)
    return [found[each[:3]] for each in work if each[:3] in found]


def _known(
    work: Sequence[tuple[str, str, int, list[str]]], raw: Path
) -> dict[tuple[str, str, int], dict[str, Any]]:
    """Return the line that counts of every run in `raw`: the last that ended or, if none did, failed."""
    lines = read_raw(raw) if raw.exists() else []
    found = {(line["env"], line["method"], line["seed"]): line for line in lines} | finished(lines)
    for env, method, seed, arguments in work:
        line = found.get((env, method, seed))
        if line is not None and line["arguments"] != arguments:
            raise ValueError(
                f"{raw} holds {env} {method} seed {seed} with arguments {line['arguments']}, expected {arguments}: "
                "resume the experiment that it belongs to, or begin another file"
            )
    return found


def _said(line: dict[str, Any]) -> str:
    ended = f"{line['success_warmup']:.3f} -> {line['success_final']:.3f}" if "curve" in line else "FAILED"
    return f"{line['env']} {line['method']} seed {line['seed']}: {ended}"


def chosen(words: Sequence[str]) -> list[str]:
    """Return the methods that the words `core`, `all` or names stand for, each once."""
    meant = {"core": list(CORE), "all": list(METHODS)}
    return list(dict.fromkeys(name for word in words for name in meant.get(word, [word])))


def main() -> None:
    parser = parser_of(__doc__, quick="one seed, three methods, few steps, fork_chain", write="ipa*")
    parser.add_argument("--env", action="append", choices=sorted(SETTINGS), help="this one; repeatable")
    parser.add_argument(
        "--methods", nargs="+", choices=["core", "all", *METHODS], default=["all"], metavar="METHOD"
    )
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--jobs", type=int, default=1, help="runs at once, each on one core")
    parser.add_argument("--resume", type=Path, metavar="RAW", help="raw file to continue, made if absent")
    parser.add_argument("--report", action="store_true", help="run nothing, report what RAW holds")
    options = parser.parse_args()
    if min(options.seeds, options.jobs) < 1 or (options.quick and options.write):
        parser.error("--seeds and --jobs must be at least 1, and --quick is no result to --write")
    if options.report and not (options.resume and options.resume.is_file()):
        parser.error(f"--report reads a raw file that is there, got --resume {options.resume}")
    envs, methods = list(dict.fromkeys(options.env or SETTINGS)), chosen(options.methods)
    seeds, setting = options.seeds, None
    if options.quick:
        envs, methods, seeds, setting = ["fork_chain"], ["bc", "ipa", "ipa+resets"], 1, QUICK
    raw = options.resume or Path("runs") / f"ipa-{time.strftime('%Y%m%d-%H%M%S')}.jsonl"
    print(f"raw lines: {raw}", flush=True)
    if options.write and raw.exists() and (left := {line["env"] for line in read_raw(raw)} - {*envs}):
        parser.error(f"--write is of all that {raw} holds: name with --env {', '.join(sorted(left))}, too")
    asked = list(jobs(envs, methods, seeds, setting))
    lines = recorded(asked, raw) if options.report else run_all(asked, raw, at_once=options.jobs)
    found = {
        env: summarise(
            [line for line in lines if line["env"] == env], (setting or SETTINGS[env]).budget, methods
        )
        for env in envs
    }
    wanted = Counter(env for env, *_ in asked)
    text = "\n\n".join(page(env, found[env], wanted[env]) for env in envs)
    print(text, flush=True)
    if options.write:
        RAW.write_bytes(raw.read_bytes())
        for env in envs:
            draw(
                RAW.with_name(f"ipa-{env}.svg"),
                env,
                [line for line in lines if line["env"] == env],
                found[env],
            )
        command = f"python -m benchmarks.ipa --env {' --env '.join(envs)} --seeds {seeds} --methods "
        command += " ".join(
            [*options.methods, "--write", *["--resume", str(RAW), "--report"] * options.report]
        )
        body = f"{SUPERSEDED}\n\n{text}"
        write_results("ipa.md", "The pre-registered comparison", command, body)
    finish(found)


if __name__ == "__main__":
    main()
