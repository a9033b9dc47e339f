"""What the processes of a run take in memory, worked out from the model's config before anything is loaded.

Estimates, in bytes; a learner's and a sampler's are compared with what a GPU counts in `docs/results`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields

from rock_env.plugins import load
from trainer.algo.base import Algorithm, AlgorithmSpec, NeedsCritic, NeedsReference
from trainer.config import TrainConfig
from trainer.learners.memory import LIBRARIES, Estimate, Shape, UpdatePlan
from trainer.protocols.memory import HOST, STORE, Part, Role

__all__ = [
    "adapter_parameters",
    "algorithm_of",
    "at_once",
    "device_of",
    "largest_part",
    "learner",
    "needs_critic",
    "needs_reference",
    "reference",
    "role_lines",
    "sampler",
    "store",
    "together",
]

_ON_THEIR_WAY = 2
"""Versions of the weights in the object store at once: one that samplers still read as the next one is written."""
_LOGITS = 4 + 4 + 8 + 8
"""Bytes that drawing takes per logit: itself, its log-probability, and the cumulative mass in float64 with its input."""


def adapter_parameters(shape: Shape, rank: int) -> int:
    """Return how many numbers LoRA adapters of all linear layers have, the output layer's excepted."""
    attention = 2 * (shape.width + shape.queries) + 2 * (shape.width + shape.values)
    return shape.layers * rank * (attention + 3 * (shape.width + shape.inner))


def device_of(config: TrainConfig, role: str, otherwise: str) -> str:
    """Return the kind of device that a role's processes compute on: CUDA where the placement gives them some."""
    placement = config.placement
    has_gpus = bool(placement.pool) and any(placement.pool[n].gpus for n in placement.bundles(role))
    return "cuda" if has_gpus else otherwise


def largest_part(config: TrainConfig, max_context: int) -> Part:
    """Return the largest pass that the settings allow: `optim.microbatch_tokens`, or all turns of an update's rollouts and
    experts, each as long as the context, where that is less. All of its tokens train.
    """
    rollout, warmup = config.rollout, config.warmup
    rows = rollout.groups_per_step * rollout.group_size + config.reuse.trajectories + config.anchors.inject
    rows = max(rows, min(warmup.batch_trajectories, warmup.trajectories)) * config.agent.max_turns
    most = config.optim.microbatch_tokens
    tokens = (
        most if warmup.data else min(most, rows * max_context)
    )  # recorded ones have as many turns as they like
    return Part(tokens, tokens)


def learner(shape: Shape, plan: UpdatePlan, device: str, *, text: int = 0) -> list[Role]:
    """Return the learner's role, one process a rank, and its moments apart where they lie on the host.

    `text`: tokens of the longest row that it only scores.
    """
    found = Estimate.of(shape, plan)
    parts = {each.name: getattr(found, each.name) for each in fields(found)}
    total, rests = found.total, found.weights + found.moments
    if device == "cpu":
        parts = found.on_processor(shape, plan, text=text)
        total = sum(parts.values())
        rests = total - parts["logits"]
    part = Part(plan.tokens, plan.trained)
    roles = [Role("learner", plan.ranks, device, total, parts, rests, _published(shape, device), part)]
    if plan.offload:
        moments = plan.moments(plan.adapters or shape.parameters)
        roles.append(Role("offloaded", plan.ranks, HOST, moments, {"moments": moments}, moments))
    return roles


def reference(shape: Shape, plan: UpdatePlan, device: str) -> Role:
    """Return the frozen reference policy, which the learner's ranks keep beside what trains."""
    weights = plan.share("weights", (2 if plan.half and plan.adapters else 4) * shape.parameters)
    return Role("reference", plan.ranks, device, weights, {"weights": weights}, weights)


def sampler(
    shape: Shape,
    device: str,
    *,
    processes: int,
    half: bool,
    rows: int,
    max_context: int,
    cache_bytes: int,
    remembered_bytes: int,
    keeps_weights: bool = True,
) -> Role:
    """Return the samplers' role. Keys and values grow up to their bounds. `keeps_weights`: also while they sleep."""
    number = 2 if half else 4
    token_bytes = shape.layers * 2 * shape.values * number
    parts = {
        "weights": number * shape.parameters,
        "cache": min(cache_bytes, rows * max_context * token_bytes),
        "remembered": remembered_bytes,
        "logits": rows * shape.vocabulary * _LOGITS,
    }
    resting = parts["weights"] if keeps_weights else 0
    if device == "cpu":
        parts["libraries"] = LIBRARIES
        resting += LIBRARIES
    return Role("sampler", processes, device, sum(parts.values()), parts, resting, _published(shape, device))


def _published(shape: Shape, device: str) -> int:
    """Return what a process on a processor sees of the weights in Ray's object store."""
    return _ON_THEIR_WAY * 4 * shape.parameters if device == "cpu" else 0


def at_once(config: TrainConfig) -> int:
    """Return the most episodes that may be played at once, all workers together."""
    rollout, judged = config.rollout, config.eval
    asked = (
        rollout.groups_per_step * rollout.group_size * (rollout.staleness + 1),
        judged.tasks * (1 + judged.samples) + (judged.apart_tasks or judged.tasks) * len(judged.apart),
        config.guard.tasks,
    )
    return min(rollout.workers * rollout.concurrency, max(asked))


def store(shape: Shape) -> Role:
    """Return the weights on their way from learner to samplers: whole and in float32, in Ray's object store."""
    weights = _ON_THEIR_WAY * 4 * shape.parameters
    return Role(STORE, 1, HOST, weights, {"weights": weights}, weights)


def needs_reference(config: TrainConfig) -> bool:
    """Return whether the run's algorithm reads a frozen reference policy, under its options."""
    _, algorithm = algorithm_of(config)
    return isinstance(algorithm, NeedsReference) and algorithm.needs_reference


def needs_critic(config: TrainConfig) -> bool:
    """Return whether the run's algorithm has a critic."""
    return isinstance(algorithm_of(config)[1], NeedsCritic)


def algorithm_of(config: TrainConfig) -> tuple[AlgorithmSpec, Algorithm]:
    """Return the run's algorithm, as the plugin declares it and as it is under the run's options."""
    spec = load("ale.algorithms", config.algo)
    assert isinstance(spec, AlgorithmSpec)
    return spec, spec.build(spec.options(**config.algo_options))


def role_lines(roles: Sequence[Role], *, placed: bool = False) -> list[str]:
    """Return the roles as a table of GB (10^9 bytes), and what each device holds where all processes share one.

    `placed`: where they are is said elsewhere.
    """
    rows = [f"{'role':<10}{'processes':>10}{'device':>8}{'each':>12}  of which"]
    for role in roles:
        parts = ", ".join(f"{name} {size / 1e9:.2f}" for name, size in role.parts.items() if size)
        if role.mapped:
            parts += f", published {role.mapped / 1e9:.2f}"
        total = f"{role.resident / 1e9:.2f} GB"
        rows.append(f"{role.name:<10}{role.processes:>10}{role.device:>8}{total:>12}  {parts}")
    rows += [
        f"the {role.name}: with a pass of {role.part.tokens:,} tokens, of which {role.part.trained:,} train"
        for role in roles
        if role.part is not None
    ]
    devices = [] if placed else [role.device for role in roles if role.device != HOST]
    alone = [f"all on one {each}: {together(roles, each) / 1e9:.2f} GB" for each in dict.fromkeys(devices)]
    return [*rows, *alone]


def together(roles: Sequence[Role], device: str) -> int:
    """Return what all processes take of one device; of a processor with what lies on the host, once however many see it."""
    devices = {"cpu", HOST} if device == "cpu" else {device}
    return sum(role.processes * role.total for role in roles if role.device in devices)
