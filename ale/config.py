"""From files and options to one validated `TrainConfig`, and back to a `config.toml` that reruns the run.

Layers, weakest first: built-in defaults, the recipe for pretrained models (`ale/recipes/default/pretrained.toml`), the
environment's recipe (`ale/recipes/ENV.toml`,
`ale/recipes/default/tasks.toml` for one made of tasks; of several environments the first one's; for `ale sft` turned into
imitation), the run of `--from`,
`--config FILE`, named options (`--seed 3`), overrides (`-s optim.lr=1e-3`). Just below the layer that chooses a CLI
agent lies `ale/recipes/default/agent.toml`. An unknown name is an error that says which layer holds it and names the
nearest valid one.
"""

from __future__ import annotations

import copy
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from pydantic import BaseModel, ValidationError

from agent_runtime.agents.spec import load_agent
from ale import toml_text
from ale.option_names import OPTION_TABLES, check_names, comments, flat, option_names
from ale.own_class import bring
from rock_env import plugins
from rock_env.arguments import problem
from rock_env.backends.plugin import choose_backends
from rock_env.errors import InvalidArgument, nearest
from rock_env.foreign import budget
from rock_env.foreign.files import plain_values
from rock_env.games.own import ClassParams
from rock_env.tasksets.environment import TaskSetParams
from trainer.config import RewardRoute, TrainConfig, shares_in
from trainer.errors import ConfigError
from trainer.models.named import check_fetched, with_folder
from trainer.reward.router import check_learned, reward_spec

__all__ = ["Layer", "Resolved", "expand", "parse_overrides", "parse_scalar", "read_toml", "render", "resolve"]

Values = dict[str, Any]

MOST_PRETRAINED_LR = 1e-4
"""Above it a pretrained model is warned of: 1e-3 destroys one in a single update (docs/results/guard.md)."""
_LONGEST = "sampling.max_tokens"
HELD_OUT_SHARE = 0.1
"""Of the experts' tasks, by which `ale sft` measures its epochs."""


@dataclass(frozen=True, slots=True)
class Layer:
    """One source of settings. `source` is how messages call it."""

    source: str
    values: Values


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
    given, assumed = _with_agent(given)
    notices += assumed
    recipe, said = _recipes(given)
    notices += said
    if imitation:
        recipe.append(_imitation_layer(_validate(recipe)))
    config = expand(_validate([*recipe, *given]))
    check_fetched(config.model)
    notices += _high_rates(config, [*recipe, *given])
    return Resolved(config, tuple(notices), frozenset(flat(_merge(users))))


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
        "env_args": _env_args(config),
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
            if selector == "env" and own is not None and own != chosen[-1] and chosen[-1] in _names_in(own):
                layer.values[table] = _alone(layer, chosen[-1]).values.get(table, {})
                continue
            if own is not None and own != chosen[-1] and layer.values.pop(table, None):
                notices.append(f"{table} in {layer.source} belong to {own!r}: not applied to {chosen[-1]!r}")
    return kept, notices


def _recipes(given: Sequence[Layer]) -> tuple[list[Layer], list[str]]:
    """Return the layers below all that was chosen, and what to say of them.

    Several environments have the recipe of the first, with the arguments of each from its own, the longest answer of all,
    and splits apart only where all have the same.
    """
    env = _merge(given).get("env", TrainConfig.model_fields["env"].default)
    names = _names_in(env)
    for name in names:
        bring(name)
    if not names:
        _validate([Layer(each.source, {"env": each.values["env"]}) for each in given if "env" in each.values])
    if len(names) < 2:
        return _recipe_layers(env, given), []
    found = {name: _merge(_recipe_layers(name, [_alone(layer, name) for layer in given])) for name in names}
    first = found[names[0]]
    models = {
        name: recipe.get("model", TrainConfig.model_fields["model"].default) for name, recipe in found.items()
    }
    if "model" not in _merge(given) and len(set(models.values())) > 1:
        wanted = ", ".join(f"{model} for {name}" for name, model in models.items())
        raise ConfigError(
            f"one model plays all of {env!r}, and the recipes choose several: {wanted}. Name one with --model, or mix "
            "environments of one model."
        )
    args = {name: recipe.pop("env_args", {}) for name, recipe in found.items()}
    if len({tuple(recipe.get("eval", {}).get("apart", ())) for recipe in found.values()}) > 1:
        first.get("eval", {}).pop("apart", None)  # a split of one of them
    longest = max(recipe.get("sampling", {}).get("max_tokens", 0) for recipe in found.values())
    source = f"the recipe for {names[0]}, the first of {env!r}"
    mixed = [Layer(source, {**first, "env_args": {name: each for name, each in args.items() if each}})]
    if longest:
        mixed.append(Layer(f"the recipes for {env!r}", {"sampling": {"max_tokens": longest}}))
    ours, chosen = flat(first), {_LONGEST, *flat(_merge(given))}
    apart = {
        name for recipe in found.values() for name, value in flat(recipe).items() if ours.get(name) != value
    }
    if not apart - chosen:
        return mixed, []
    named = ", ".join(sorted(apart - chosen))
    return mixed, [f"settings are those of {source}; other recipes of them have other values of {named}"]


def _names_in(env: object) -> list[str]:
    """Return the names of the environments that `env` stands for; of what is malformed none."""
    try:
        return [each.env for each in shares_in(env)] if isinstance(env, str) else []
    except ValueError:
        return []


def _alone(layer: Layer, env: str) -> Layer:
    """Return a layer as it is for one of several environments."""
    values = copy.deepcopy(layer.values)
    if "env" in values:
        values["env"] = env
    if "env_args" in values:
        own = values["env_args"].get(env, {})
        values["env_args"] = own if isinstance(own, Mapping) else {}
    return Layer(layer.source, values)


def _recipe_layers(env: str, given: Sequence[Layer]) -> list[Layer]:
    """Return the recipe of an environment and those of its variants that match what was chosen."""
    spec = plugins.load_env(
        env
    )  # an unknown environment is refused before its (missing) recipe is looked for
    recipes = resources.files("ale") / "recipes"
    recipe, source = recipes / f"{env}.toml", f"the recipe for {env}"
    if spec.library:
        recipe, source = (
            recipes / "default" / "libraries.toml",
            "the recipe for environments of other libraries",
        )
    elif not recipe.is_file() and issubclass(spec.params, TaskSetParams):
        recipe, source = recipes / "default" / "tasks.toml", "the recipe for environments made of tasks"
    elif issubclass(spec.params, ClassParams):
        recipe, source = recipes / "default" / "class.toml", "the recipe for classes"
    layers, variants = list[Layer](), list[tuple[str, Values]]()
    pretrained = recipes / "default" / "pretrained.toml"
    for file, name in ((pretrained, "the recipe for pretrained models"), (recipe, source)):
        values = tomllib.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}
        variants += [(name, variant) for variant in values.pop("variant", [])]
        check_names(values, name)
        layers.append(Layer(name, values))
    for name, variant in variants:
        match = variant.pop("match")
        layer = Layer(f"{name} where {match}", variant)
        check_names(layer.values, layer.source)
        # Matched against what earlier variants made of it too, so that a later one may refine them.
        seen = _validate([*layers, *given])
        values = flat({**seen.model_dump(), "env_args": _env_args(seen), "engine": seen.engine})
        if _matches(match, values, name):
            layers.append(layer)
    return layers


def _matches(match: Mapping[str, Any], values: Values, source: str) -> bool:
    """Return whether the options have these values; one that depends on an earlier one stands behind it."""
    for name, value in match.items():
        if name not in values:
            raise ConfigError(f"a variant in {source} matches on {name!r}, which is not an option")
        if values[name] != value:
            return False
    return True


def _with_agent(given: list[Layer]) -> tuple[list[Layer], list[str]]:
    """Put the recipe for CLI agents just below the layer that chooses one, and keeps it to the end; its model is for who
    chose none, and is named in what is returned beside."""
    named = [(at, layer.values["agent"]["name"]) for at, layer in enumerate(given) if _names_agent(layer)]
    if not named or not named[-1][1]:
        return given, []
    kept = len(named)
    while kept and named[kept - 1][1] == named[-1][1]:
        kept -= 1
    at, source = named[kept][0], "the recipe for CLI agents"
    text = (resources.files("ale") / "recipes" / "default" / "agent.toml").read_text(encoding="utf-8")
    values = tomllib.loads(text)
    assumed = []
    if any("model" in layer.values for layer in given):
        del values["model"]
    else:
        assumed = [f"no --model was named: the agent {named[-1][1]} plays with {values['model']}"]
    return [*given[:at], Layer(source, values), *given[at:]], assumed


def _names_agent(layer: Layer) -> bool:
    return "name" in layer.values.get("agent", {})


def _merge(layers: Sequence[Layer]) -> Values:
    merged: Values = {}

    def into(target: Values, values: Mapping[str, Any]) -> None:
        for key, value in values.items():
            if isinstance(value, Mapping):
                into(target.setdefault(key, {}), value)
            else:
                target[key] = value

    for layer in layers:
        into(merged, layer.values)
    return merged


def _validate(layers: Sequence[Layer]) -> TrainConfig:
    try:
        return TrainConfig.model_validate(_merge(layers))
    except ValidationError as error:
        first = error.errors()[0]
        # A union adds the type it tried to the location, so the option is the longest known beginning of it.
        known = {*option_names(), *flat(_merge(layers))}
        path = [str(part) for part in first["loc"]]
        while len(path) > 1 and ".".join(path) not in known:
            path.pop()
        several = isinstance(first["input"], Mapping)
        where = (
            "bad settings" if several else f"bad value for {'.'.join(path)!r} in {_source_of(path, layers)}"
        )
        raise ConfigError(f"{where}: {problem(error)}") from error


def _high_rates(config: TrainConfig, layers: Sequence[Layer]) -> list[str]:
    """Return a warning for each learning rate that destroys a pretrained model. No recipe has one; a user may."""
    engine = plugins.load("ale.engines", config.engine)
    if not isinstance(engine, _WithProse) or engine.prose is None:
        return []
    rates = {"optim": config.optim.lr, "warmup": config.warmup.lr if config.warmup.epochs else 0.0}
    return [
        f"{section}.lr={rate:g} in {_source_of([section, 'lr'], layers)} is likely to destroy the pretrained model "
        f"{config.model!r}: expected at most {MOST_PRETRAINED_LR:g}, and better 1e-5 or less"
        for section, rate in rates.items()
        if rate > MOST_PRETRAINED_LR
    ]


def _source_of(path: Sequence[str], layers: Sequence[Layer]) -> str:
    for layer in reversed(layers):
        if ".".join(path) in flat(layer.values):
            return layer.source
    return "the defaults"


def _env_args(config: TrainConfig) -> Values:
    """Return the environment's arguments, of several environments a table each."""
    if len(config.shares) > 1:
        return {each.env: _env_args(config.alone(each.env)) for each in config.shares}
    params = plugins.load_env(config.env).params
    return _validated(params, config.env_args, f"argument of env {config.env!r}")


def _plugin_options(plugin: object, values: Mapping[str, Any], owner: str) -> Values:
    if not isinstance(plugin, _WithOptions):
        raise ConfigError(f"the plugin for {owner} declares no options: got {type(plugin).__name__}")
    return _validated(plugin.options, values, f"option of {owner}")


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


def _validated(model: type[BaseModel], values: Mapping[str, Any], what: str) -> Values:
    """Return all of a plugin's options, defaults included. None has no TOML form and is left out."""
    try:
        options = model.model_validate(dict(values))
    except ValidationError as error:
        first = error.errors()[0]
        name = str(first["loc"][0]) if first["loc"] else ""
        if first["type"] == "extra_forbidden":
            raise nearest(what, name, model.model_fields) from error
        subject = f"{what}, {name!r}" if name else what
        raise ConfigError(f"bad {subject}: {problem(error)}") from error
    return {key: value for key, value in options.model_dump().items() if value is not None}


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
    env, env_args = plugins.load_env(config.env), _env_args(config)
    splits = env.tasks(env.params.model_validate(env_args)).splits
    asked = [("train_split", config.train_split), ("eval.split", config.eval.split)]
    for option, split in (*asked, *(("eval.apart", split) for split in config.eval.apart)):
        if split not in splits:
            raise nearest(f"{option} of env {config.env!r}", split, splits)
    if len({config.eval.split, *config.eval.apart}) <= len(config.eval.apart):
        raise ConfigError(
            f"eval.apart names a split twice, or eval.split itself: {', '.join(config.eval.apart)}."
        )
