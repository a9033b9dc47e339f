"""What the raw lines of `benchmarks.ipa` say: table, paired differences, hypotheses, figure. Pure but for `draw`.

The rules are those of docs/results/ipa-preregistration.md. A run that failed is counted and has no number.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any

from benchmarks.scaffold import markdown_table
from benchmarks.statistics import Interval, bootstrap, paired_differences, success_at

__all__ = ["STALENESS", "decide", "draw", "page", "primary", "summarise"]

LEAST_PAIRS = 5
"""Pairs below which a hypothesis is not decided."""
RESET_ALGORITHMS = ("ipa", "grpo", "reinforce")
STALENESS = (4, 8)
"""Learning steps by which the weights that sample lag behind, beside 0; a method's name then ends in `@4` or `@8`."""


def primary(line: dict[str, Any], budget: int) -> tuple[float, bool]:
    """Return a run's held-out success at `budget` environment steps, and whether it got there; else its last success.

    Imitation alone takes no environment step: its last success counts, at any budget.
    """
    curve = [(float(steps), float(success)) for steps, success in line["curve"]]
    if not curve[-1][0]:
        return curve[-1][1], True
    success = success_at(curve, budget)
    return (curve[-1][1], False) if success is None else (success, True)


def summarise(lines: Sequence[dict[str, Any]], budget: int, asked: Sequence[str] = ()) -> dict[str, Any]:
    """Return the table, the paired differences and the verdicts of one environment, ready for JSON.

    `asked` are the methods of the comparison: those without a line are named.
    """
    success: dict[str, dict[int, float]] = {}
    methods: dict[str, dict[str, Any]] = {}
    for name in dict.fromkeys(line["method"] for line in lines):
        own = [line for line in lines if line["method"] == name]
        ended = [line for line in own if "curve" in line]
        reads = {line["seed"]: primary(line, budget) for line in ended}
        success[name] = {seed: value for seed, (value, _) in reads.items()}
        apart = {
            split: _interval([line["apart"][split] for line in ended])
            for split in (ended[0]["apart"] if ended else ())
        }
        methods[name] = {
            "by_seed": {str(seed): round(value, 4) for seed, value in success[name].items()},
            "iqm": _interval(list(success[name].values())),
            "apart": apart,
            "short_of_budget": sum(not reached for _, reached in reads.values()),
            "failed": len(own) - len(ended),
        }
    effects = {f"{name}+resets - {name}": (f"{name}+resets", name) for name in methods}
    effects |= {
        f"{name} - {fresh}": (name, fresh) for name in methods for fresh, at, _ in [name.partition("@")] if at
    }
    effects |= {f"{name} - bc": (name, "bc") for name in methods if name != "bc"}
    effects |= {
        f"ipa{resets} - {name}{resets}": (f"ipa{resets}", f"{name}{resets}")
        for name in ("grpo", "reinforce", "bc-ipa")
        for resets in ("", "+resets")
    }
    pairs = {
        effect: paired_differences(success[first], success[second])
        for effect, (first, second) in effects.items()
        if first in success and second in success
    }
    pairs |= _stale_pairs(pairs)
    pooled = [
        list(pairs[f"{n}+resets - {n}"].values()) for n in RESET_ALGORITHMS if f"{n}+resets - {n}" in pairs
    ]
    strata = {
        "resets help": pooled if len(pooled) == len(RESET_ALGORITHMS) else [],
        "the chunk loss is robust to staleness": [
            list(pairs.get(_lost_less("ipa", "grpo", max(STALENESS)), {}).values())
        ],
        "ipa is above bc on held-out tasks": [list(pairs.get("ipa+resets - bc", {}).values())],
    }
    decided = {name: decide(each) for name, each in strata.items()}
    return {
        "budget": budget,
        "commits": list(dict.fromkeys(line["commit"] for line in lines)),
        "methods": methods,
        "differences": {name: _interval(list(values.values())) for name, values in pairs.items()},
        "hypotheses": {name: said for name, (said, _) in decided.items()},
        "decided_by": {name: found.rounded() for name, (_, found) in decided.items() if found is not None},
        "not_run": [name for name in asked if name not in methods],
    }


def _lost_less(first: str, second: str, lag: int) -> str:
    """Return the name of a difference of differences; above 0, `first` loses less to staleness than `second`."""
    return f"({first} - {second})+resets, @{lag} - @0"


def _stale_pairs(pairs: Mapping[str, dict[int, float]]) -> dict[str, dict[int, float]]:
    """Return by how much less, seed by seed, the chunk loss loses to staleness than what it is compared with."""
    found = {}
    for first, second in product(("ipa", "ipa-gamma0.7"), ("grpo", "reinforce")):
        for lag in STALENESS:
            one, other = (f"{name}+resets@{lag} - {name}+resets" for name in (first, second))
            if one in pairs and other in pairs:
                found[_lost_less(first, second, lag)] = paired_differences(pairs[one], pairs[other])
    return found


def decide(strata: Sequence[Sequence[float]]) -> tuple[str, Interval | None]:
    """Return what differences say of "they are above 0", and by which interval.

    `holds`, `opposite` or `undecided`; without an interval, why it is not decided.
    """
    if min((len(values) for values in strata), default=0) < LEAST_PAIRS:
        return f"not decided: a method has fewer than {LEAST_PAIRS} pairs", None
    found = bootstrap(strata)
    if found.low > 0:
        return "holds", found
    return "opposite" if found.high < 0 else "undecided", found


def page(env: str, found: dict[str, Any], asked: int) -> str:
    """Return an environment's section of the results page; `asked` is how many runs the comparison has."""
    made = sum(len(method["by_seed"]) for method in found["methods"].values())
    whole = f"Held-out success at {found['budget']} environment steps; {made} of {asked} runs made"
    whole += (
        f", at commit {', '.join(f'`{each}`' for each in found['commits'])}." if found["commits"] else "."
    )
    if found["not_run"]:
        whole += f" Not run: {', '.join(found['not_run'])}."
    seeds = sorted({seed for method in found["methods"].values() for seed in method["by_seed"]}, key=int)
    splits = list(dict.fromkeys(split for method in found["methods"].values() for split in method["apart"]))
    rows = [
        [
            name,
            *(method["by_seed"].get(seed, "") for seed in seeds),
            _shown(method["iqm"]),
            *(_shown(method["apart"].get(split)) for split in splits),
            method["short_of_budget"],
            method["failed"],
        ]
        for name, method in found["methods"].items()
    ]
    header = ["method", *(f"seed {s}" for s in seeds), "IQM [95 %]", *(f"{s}, at the end" for s in splits)]
    differences = [[name, _shown(interval)] for name, interval in found["differences"].items()]
    hypotheses = [
        [name, said, _shown(found["decided_by"].get(name), digits=4)]
        for name, said in found["hypotheses"].items()
    ]
    return "\n\n".join(
        [
            f"## {env}",
            whole,
            markdown_table([*header, "short of budget", "failed"], rows),
            markdown_table(["difference, paired by seed", "IQM [95 %]"], differences),
            markdown_table(["hypothesis", "verdict", "decided by the IQM [95 %]"], hypotheses),
        ]
    )


def draw(path: Path, env: str, lines: Sequence[dict[str, Any]], found: dict[str, Any]) -> None:
    """Write the figure: every method's interval, and every run's learning curve. Raise `ImportError` without matplotlib."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    mpl.rcParams["svg.hashsalt"] = "ale"  # the same numbers give the same file
    known = {name: method["iqm"] for name, method in found["methods"].items() if method["iqm"]}
    figure = Figure(figsize=(12, 2 + 0.25 * len(known)), layout="constrained")
    bars, curves = figure.subplots(1, 2)
    for row, (name, (estimate, *ends)) in enumerate(known.items()):
        colour = f"C{row % 10}"
        bars.plot(ends, [row] * len(ends), color=colour)
        bars.plot([estimate], [row], "o", color=colour)
        for line in lines:
            if line["method"] == name and "curve" in line:
                curves.plot(*zip(*line["curve"], strict=True), color=colour, linewidth=0.8)
    bars.set(yticks=range(len(known)), yticklabels=list(known), xlabel="held-out success, IQM", title=env)
    bars.invert_yaxis()  # the order of the table
    curves.axvline(found["budget"], color="0.5", linestyle=":")
    curves.set(xlabel="environment steps", ylabel="held-out success", ylim=(0, 1.05))
    figure.savefig(path, metadata={"Date": None})


def _interval(values: Sequence[float]) -> list[float] | None:
    """Return estimate, low and high; the value alone where there is one run, None where none ended."""
    if len(values) < 2:
        return [round(values[0], 4)] if values else None
    return bootstrap([values]).rounded()


def _shown(interval: list[float] | None, digits: int = 3) -> str:
    if interval is None:
        return ""
    estimate, *ends = (f"{number:.{digits}f}" for number in interval)
    return f"{estimate} [{', '.join(ends)}]" if ends else estimate
