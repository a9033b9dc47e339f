"""Why does a run on `swe` learn what it learns? Read from its records, and its experts' repairs from weights.

    python -m benchmarks.swe_profile RUN [--weights CHECKPOINT] [--gradient STEP]

Prints for each evaluation and step: success and searches by bug family, what follows failing tests while an edit stands, how
episodes end. Of the experts' repairs: how they are said, and with `--weights` (a folder of the run's checkpoints; without,
the base weights) how likely. `--gradient STEP` adds the norms of that step's gradient at those weights, term by term. Plays
nothing and changes nothing; docs/results/swe-learning.md was made with it.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from agent_runtime.store import read_encoded, read_segment
from agent_runtime.types import IntArray, Trajectory
from ale.training.runs import recorded_config
from benchmarks.scaffold import markdown_table, parser_of
from sandboxes.swe import catalog, factory
from sandboxes.swe.params import SweParams
from trainer.algo.base import Credit
from trainer.data.build import build_batch, microbatches
from trainer.models.coder.words import EDIT, RANGE
from trainer.processes.learner import Learner

TOOLS = ("view", "edit", "undo", "run_tests", "submit")
GONE_WELL = "[exit code 0]"


def family(trajectory: Trajectory) -> str:
    """Return the bug family of a trajectory's task, of the built-in ones."""
    split, _, index = trajectory.task_id.rpartition("/")
    return factory.read_index().by_key[catalog.task_keys(SweParams(), split)[int(index)]].family


def tool(action: str) -> str:
    """Return the tool that an action calls; "text" for what is none."""
    name = action.split()[0] if action.strip() else ""
    return name if name in TOOLS else "text"


def after_failing_tests(trajectories: Sequence[Trajectory]) -> Counter[str]:
    """Count the tools called right after tests that failed while an edit stood."""
    found: Counter[str] = Counter()
    for t in trajectories:
        standing, failed = 0, False
        for action, observation in zip(t.actions, t.observations, strict=True):
            name = tool(action)
            if failed and standing:
                found[name] += 1
            standing += (name == "edit" and observation.startswith("Edited")) - (
                name == "undo" and observation.startswith("Undone")
            )
            failed = name == "run_tests" and GONE_WELL not in observation
    return found


def ending(trajectory: Trajectory) -> str:
    """Return how an episode ended: passed, submitted a failing work, or what cut it off."""
    if trajectory.passed:
        return "passed"
    last = trajectory.actions[-1] if trajectory.actions else ""
    return "submitted failing work" if tool(last) == "submit" else trajectory.stop_reason.value


def flat_groups(trajectories: Sequence[Trajectory]) -> tuple[int, int]:
    """Return how many groups have equal outcomes, and how many there are."""
    groups: dict[str, set[bool]] = defaultdict(set)
    for t in trajectories:
        groups[t.group_id].add(t.passed)
    return sum(len(outcomes) == 1 for outcomes in groups.values()), len(groups)


def prompts(trajectory: Trajectory) -> Iterator[tuple[IntArray, IntArray]]:
    """Yield the prompt and the answer of each turn of a chat that keeps all."""
    ids = np.zeros(0, np.int32)
    for turn in trajectory.turns:
        ids = np.concatenate((ids, turn.context_ids))
        yield ids, turn.completion_ids
        ids = np.concatenate((ids, turn.completion_ids))


def likelihood(learner: Learner, prompt: IntArray, answer: IntArray) -> float:
    """Return the probability of a whole answer."""
    ids = torch.from_numpy(np.concatenate((prompt, answer)).astype(np.int64))[None]
    at = torch.arange(len(prompt) - 1, len(ids[0]) - 1)
    with torch.no_grad():
        values, _ = learner._engine.net.picked(ids, at[None], torch.arange(len(at)), ids[0, at + 1])
    return float(values.sum().exp())


def show_outcomes(title: str, trajectories: Sequence[Trajectory]) -> None:
    rows = []
    names = ["all", *sorted({family(t) for t in trajectories})]
    for name in names:
        members = [t for t in trajectories if name in ("all", family(t))]
        flat, groups = flat_groups(members)
        edits = [sum(tool(action) == "edit" for action in t.actions) for t in members]
        turns = float(np.mean([len(t.turns) for t in members]))
        first = sum(t.passed and count == 1 for t, count in zip(members, edits, strict=True))
        passed = sum(t.passed for t in members)
        rows.append((name, len(members), passed, first, turns, float(np.mean(edits)), f"{flat} of {groups}"))
    header = ["family", "played", "passed", "by the first edit", "turns", "edits", "groups that tell nothing"]
    print(f"\n## {title}\n\n{markdown_table(header, rows)}\n")
    after = after_failing_tests(trajectories)
    told = ", ".join(f"{name} {count / after.total():.2f}" for name, count in after.most_common())
    print(f"after failing tests while an edit stands ({after.total()}): {told}")
    print("ends:", ", ".join(f"{end} {n}" for end, n in Counter(map(ending, trajectories)).most_common()))


def show_repairs(learner: Learner, experts: Sequence[Trajectory], longest: int) -> None:
    found: dict[str, list[tuple[int, int, float]]] = defaultdict(list)
    for t in experts:
        (prompt, answer) = [
            pair for pair, action in zip(prompts(t), t.actions, strict=True) if tool(action) == "edit"
        ][-1]
        new = answer[4 if answer[2] == RANGE else 3 :] if answer[0] == EDIT else answer
        spelled = int((new < learner._template.words.size).sum())
        found[family(t)].append((len(answer), spelled, likelihood(learner, prompt, answer)))
    rows = []
    for name, values in sorted(found.items()):
        length, spelled, chance = (np.array(column) for column in zip(*values, strict=True))
        over = int((length > longest).sum())
        middle = float(np.median(length)), float(np.median(spelled))
        known = float(chance.mean()), f"{np.median(chance):.1e}", float((chance > 0.005).mean())
        rows.append((name, len(values), *middle, over, *known))
    header = ["family", "repairs", "tokens", "spelled", "too long", "likelihood", "median", "above 0.005"]
    print(f"\n## Repairs of the experts\n\n{markdown_table(header, rows)}")


def show_gradient(
    learner: Learner, rollouts: Sequence[Trajectory], experts: Sequence[Trajectory], budget: int
) -> None:
    credits = learner._credits(rollouts)

    def of(members: Sequence[Trajectory], weighed: Sequence[Credit]) -> torch.Tensor:
        batch, _ = build_batch(members, weighed, token_budget=budget)
        batch = replace(batch, prox_logprobs_BT=learner._engine.logprobs(batch))
        net = learner._engine.net
        net.zero_grad()
        for part in microbatches(batch, 8192):
            output = learner._algo.loss(part, learner._engine._finite(part)[0])
            if output.loss.requires_grad:
                output.loss.backward()
        return torch.cat(
            [torch.zeros_like(p).flatten() if p.grad is None else p.grad.flatten() for p in net.parameters()]
        )

    def only(positive: bool) -> torch.Tensor:
        return of(
            rollouts,
            [
                c if c.positive is positive else replace(c, advantage_K=np.zeros_like(c.advantage_K))
                for c in credits
            ],
        )

    def cosine(one: torch.Tensor, other: torch.Tensor) -> float:
        return float(torch.nn.functional.cosine_similarity(one, other, dim=0))

    successes, failures = only(True), only(False)
    imitation = of(experts, learner._algo.credit(experts))
    groups = sorted({t.group_id for t in rollouts})
    halves = []
    for chosen in (set(groups[::2]), set(groups[1::2])):
        kept = [(t, c) for t, c in zip(rollouts, credits, strict=True) if t.group_id in chosen]
        halves.append(of(*(list(column) for column in zip(*kept, strict=True))))
    shown = [of(experts[part::2], learner._algo.credit(experts[part::2])) for part in (0, 1)]
    rows = [
        ("imitation", float(imitation.norm()), cosine(*shown)),
        ("RL", float((successes + failures).norm()), cosine(*halves)),
        ("of it successes", float(successes.norm()), ""),
        ("of it failures", float(failures.norm()), ""),
    ]
    print(f"\n## Gradient\n\n{markdown_table(['part of the loss', 'norm', 'cosine of its halves'], rows)}")


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("run", type=Path)
    parser.add_argument("--weights", type=Path, help="a checkpoint's folder")
    parser.add_argument("--gradient", type=int, help="a step whose rollouts are there")
    options = parser.parse_args()
    config, records = recorded_config(options.run), options.run / "trajectories"
    for path in sorted([*records.glob("eval-*"), *records.glob("step-*")]):
        show_outcomes(path.stem, list(read_segment(path)))
    learner = Learner(config)
    learner.ready()
    (path,) = records.glob("expert.*")
    learner.take_experts(list(read_encoded(path)), [])
    if options.weights is not None:
        learner._engine.load(options.weights)
    experts = list(read_segment(path))
    show_repairs(learner, experts, config.sampling.max_tokens)
    if options.gradient is not None:
        (path,) = records.glob(f"step-{options.gradient:06d}.*")
        shown = experts[: config.anchors.inject or len(experts)]
        show_gradient(learner, list(read_segment(path)), shown, config.rollout.token_budget)


if __name__ == "__main__":
    main()
