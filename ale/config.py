"""From files and options to one validated `TrainConfig`, and back to a `config.toml` that reruns the run.

Layers, weakest first: built-in defaults, the recipe for pretrained models (`ale/recipes/hf/default.toml`), the
environment's recipe (`ale/recipes/ENV.toml`,
`ale/recipes/default/tasks.toml` for one made of tasks; of several environments the first one's; for `ale sft` turned into
imitation), the run of `--from`,
`--config FILE`, named options (`--seed 3`), overrides (`-s optim.lr=1e-3`). Just below the layer that chooses a CLI
agent lies `ale/recipes/default/agent.toml`. An unknown name is an error that says which layer holds it and names the
nearest valid one.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from pydantic import BaseModel

from agent_runtime.agents.spec import load_agent
from ale import toml_text
from ale.layers import (
    Layer,
    Values,
    alone,
    env_args,
    merge,
    names_in,
    recipes,
    source_of,
    validate,
    validated,
    with_agent,
)
from ale.option_names import OPTION_TABLES, check_names, comments, flat
from rock_env import plugins
from rock_env.backends.plugin import choose_backends
from rock_env.errors import InvalidArgument, nearest
from rock_env.foreign import budget
from rock_env.foreign.files import plain_values
from trainer.config import RewardRoute, TrainConfig
from trainer.errors import ConfigError
from trainer.models.named import check_fetched, with_folder
from trainer.reward.router import check_learned, reward_spec

__all__ = ["Layer", "Resolved", "expand", "parse_overrides", "parse_scalar", "read_toml", "render", "resolve"]

MOST_PRETRAINED_LR = 1e-4
"""Above it a pretrained model is warned of: 1e-3 destroys one in a single update (docs/results/guard.md)."""
ADAPTER_TIMES = 10
"""An adapter alone bears so much more: LoRA's best rates are about ten times those of all weights (arXiv 2405.09673)."""
HELD_OUT_SHARE = 0.1
"""Of the experts' tasks, by which `ale sft` measures its epochs."""


@dataclass(frozen=True, slots=True)
class Resolved:
    """What a run is determined by, and what the user should know about how it came about."""

    config: TrainConfig
    notices: tuple[str, ...] = ()
    chosen: frozenset[str] = frozenset()
    """Dotted names of what the user set, by options or in a file."""


@runtime_checkable
class _WithOptions(Protocol):
    options: type[BaseModel]


@runtime_checkable
class _WithProse(Protocol):
    prose: object
    """Not None: its models are pretrained on text (`trainer.protocols.engines.EngineSpec`)."""


def resolve(
    *,
    file: Path | None = None,
    options: Mapping[str, Any] | None = None,
    overrides: Sequence[str] = (),
    before: Layer | None = None,
    imitation: bool = False,
) -> Resolved:
    """Merge all layers, validate them, and fill in every plugin's own defaults.

    `options` are top-level fields chosen by name (None means not chosen), `before` is what the run continued from
    hands down, `imitation` makes the recipe's warm-up the whole run. Raise `ConfigError`, or `RockError` for an unknown
    plugin.
    """
    named = {key: value for key, value in (options or {}).items() if value is not None}
    given = [Layer("the command line", named), Layer("the command line", parse_overrides(overrides))]
    if file is not None:
        given.insert(0, Layer(str(file), read_toml(file)))
    users = tuple(given)
    if before is not None:
        given.insert(0, before)
    for layer in given:
        check_names(layer.values, layer.source)
    given, notices = _drop_foreign_tables(given)
    given, assumed = with_agent(given)
    notices += assumed
    recipe, said = recipes(given)
    notices += said
    if imitation:
        recipe.append(_imitation_layer(validate(recipe)))
    config = expand(validate([*recipe, *given]))
    check_fetched(config.model)
    notices += _high_rates(config, [*recipe, *given])
    return Resolved(config, tuple(notices), frozenset(flat(merge(users))))


def expand(config: TrainConfig) -> TrainConfig:
    """Validate the options of all plugins that were chosen, and return them with all defaults filled in.

    Imports the plugins. Raise `ConfigError` or `UnknownName`.
    """
    for each in config.shares:
        _check_splits(config.alone(each.env))
        _check_experts(config.alone(each.env))
    _check_sessions(config)
    choose_backends(config.rollout.backends)
    if config.agent.name:  # before plugins bring torch
        load_agent(config.agent.name)
    algo, engine = plugins.load("ale.algorithms", config.algo), plugins.load("ale.engines", config.engine)
    tables = {
        "reward": {**config.reward.model_dump(), "routes": list(map(_reward_route, config.reward.routes))},
        "env_args": env_args(config),
        "algo_options": _plugin_options(algo, config.algo_options, f"algorithm {config.algo!r}"),
        "engine_options": _plugin_options(engine, config.engine_options, f"engine {config.engine!r}"),
        "sampler_options": _sampler_options(config),
    }
    expanded = TrainConfig.model_validate({**config.model_dump(), **tables})
    for route in expanded.reward.routes:
        if reward_spec(route.worker).options.model_validate(route.options).gives_turn_rewards:
            check_learned(expanded, route.worker)
    return expanded


def render(config: TrainConfig) -> str:
    """Return the config as commented TOML; `resolve(file=...)` of it gives an equal config."""
    return toml_text.render(config.model_dump(), comments=comments())


def read_toml(path: Path) -> Values:
    """Read a TOML file. Raise `ConfigError` saying where (line and column) it is malformed."""
    try:
        return budget.read_settings(path)
    except InvalidArgument as error:
        raise ConfigError(str(error)) from error
    except OSError as error:
        raise ConfigError(
            f"cannot read the config file {path}: {error.strerror}. Name a TOML file, such as config.toml of a run."
        ) from error


def parse_overrides(overrides: Sequence[str]) -> Values:
    """Turn `["optim.lr=1e-3", ...]` into nested values; later ones win. Raise `ConfigError`."""
    values: Values = {}
    for text in overrides:
        name, equals, value = text.partition("=")
        parts = name.strip().split(".")
        if not equals or not all(parts):
            raise ConfigError(f"override {text!r} is not of the form NAME=VALUE, such as optim.lr=1e-3")
        table = values
        for part in parts[:-1]:
            table = table.setdefault(part, {})
            if not isinstance(table, dict):
                raise ConfigError(f"override {text!r} contradicts an earlier one, which set {part!r}")
        table[parts[-1]] = parse_scalar(value)
    return values


def parse_scalar(text: str) -> Any:
    """Read a value as TOML would; what is not TOML (`4x4`, `tiny`) is a string."""
    stripped = text.strip()
    try:
        parsed = plain_values(tomllib.loads(f"value = {stripped}"), f"the value {stripped[:40]!r}…")
    except tomllib.TOMLDecodeError:
        return stripped
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"bad value {stripped[:40]!r}…: {error}") from error
    return parsed["value"] if len(parsed) == 1 else stripped


def _imitation_layer(recipe: TrainConfig) -> Layer:
    """Turn a recipe's warm-up into a run of its own: a step is an epoch, saved when it is done."""
    warmup = recipe.warmup
    values = {
        "steps": warmup.epochs,
        "optim": {"lr": warmup.lr},
        "warmup": {"epochs": 0, "held_out": HELD_OUT_SHARE},
        "eval": {"every": 0},
        "checkpoint": {"every": 1},
    }
    return Layer("ale sft", values)


def _drop_foreign_tables(layers: Sequence[Layer]) -> tuple[list[Layer], list[str]]:
    """Leave out option tables that belong to another env, algo or model than the one finally chosen."""
    kept, notices = [Layer(layer.source, with_folder(layer.values)) for layer in layers], []
    for selector, table in OPTION_TABLES.items():
        chosen = [layer.values[selector] for layer in kept if selector in layer.values]
        for layer in kept:
            own = layer.values.get(selector)
            if selector == "env" and own is not None and own != chosen[-1] and chosen[-1] in names_in(own):
                layer.values[table] = alone(layer, chosen[-1]).values.get(table, {})
                continue
            if own is not None and own != chosen[-1] and layer.values.pop(table, None):
                notices.append(f"{table} in {layer.source} belong to {own!r}: not applied to {chosen[-1]!r}")
    return kept, notices


def _high_rates(config: TrainConfig, layers: Sequence[Layer]) -> list[str]:
    """Return a warning for each learning rate that destroys a pretrained model. No recipe has one; a user may."""
    engine = plugins.load("ale.engines", config.engine)
    if not isinstance(engine, _WithProse) or engine.prose is None:
        return []
    most = MOST_PRETRAINED_LR
    if config.engine_options.get("lora_rank") or config.engine_options.get("adapter"):
        most *= ADAPTER_TIMES
    rates = {"optim": config.optim.lr, "warmup": config.warmup.lr if config.warmup.epochs else 0.0}
    return [
        f"{section}.lr={rate:g} in {source_of([section, 'lr'], layers)} is likely to destroy the pretrained model "
        f"{config.model!r}: expected at most {most:g}, and better {most / 10:g} or less"
        for section, rate in rates.items()
        if rate > most
    ]


def _plugin_options(plugin: object, values: Mapping[str, Any], owner: str) -> Values:
    if not isinstance(plugin, _WithOptions):
        raise ConfigError(f"the plugin for {owner} declares no options: got {type(plugin).__name__}")
    return validated(plugin.options, values, f"option of {owner}")


def _sampler_options(config: TrainConfig) -> Values:
    if config.sampler:
        sampler = plugins.load("ale.engines", config.sampler)
        return _plugin_options(sampler, config.sampler_options, f"sampler {config.sampler!r}")
    if config.sampler_options:
        raise ConfigError(
            f"sampler_options={config.sampler_options!r} would do nothing: got sampler='', expected an installed engine. "
            "The learner's own sampler goes by engine_options."
        )
    return {}


def _reward_route(route: RewardRoute) -> Values:
    spec = reward_spec(route.worker)
    return {
        **route.model_dump(),
        "options": _plugin_options(spec, route.options, f"reward worker {route.worker!r}"),
    }


def _check_sessions(config: TrainConfig) -> None:
    """Refuse what acts on the sessions of CLI agents where none plays: the learner would, but after a warm-up and a step."""
    for name in ("train_labels", "branch_credit"):
        value, default = getattr(config.rollout, name), type(config.rollout).model_fields[name].default
        if not config.agent.name and value != default:
            raise ConfigError(
                f"rollout.{name}={value!r} would do nothing: got agent.name='', expected a CLI agent, whose calls are of "
                "several kinds. Leave it out, or choose an agent with --agent."
            )


def _check_experts(config: TrainConfig) -> None:
    warmup = config.warmup
    if warmup.trajectories and not warmup.data and not plugins.load_env(config.env).has_oracle:
        raise ConfigError(
            f"warmup.trajectories={warmup.trajectories} asks for experts: env {config.env!r} has no reference policy that "
            "could play them, expected 0. Set warmup.trajectories=0, or imitate recordings with warmup.data."
        )


def _check_splits(config: TrainConfig) -> None:
    env, args = plugins.load_env(config.env), env_args(config)
    splits = env.tasks(env.params.model_validate(args)).splits
    asked = [("train_split", config.train_split), ("eval.split", config.eval.split)]
    for option, split in (*asked, *(("eval.apart", split) for split in config.eval.apart)):
        if split not in splits:
            raise nearest(f"{option} of env {config.env!r}", split, splits)
    if len({config.eval.split, *config.eval.apart}) <= len(config.eval.apart):
        raise ConfigError(
            f"eval.apart names a split twice, or eval.split itself: {', '.join(config.eval.apart)}."
        )
