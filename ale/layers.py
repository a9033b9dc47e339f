"""The layers of settings below what the user chose: recipes of environments, of pretrained models and of CLI agents.

A layer is a table of settings with the name that messages call it by. Merged in their order, the weakest first, they become
one `TrainConfig` (`ale.config`).
"""

from __future__ import annotations

import copy
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from typing import Any

from pydantic import BaseModel, ValidationError

from ale.option_names import check_names, flat, option_names
from ale.own_class import bring
from rock_env import plugins
from rock_env.arguments import problem
from rock_env.errors import nearest
from rock_env.games.own import ClassParams
from rock_env.tasksets.environment import TaskSetParams
from trainer.config import PRETRAINED, TrainConfig, shares_in
from trainer.errors import ConfigError

__all__ = [
    "Layer",
    "Values",
    "alone",
    "env_args",
    "merge",
    "names_in",
    "recipes",
    "source_of",
    "validate",
    "validated",
    "with_agent",
]

Values = dict[str, Any]

_LONGEST = "sampling.max_tokens"


@dataclass(frozen=True, slots=True)
class Layer:
    """One source of settings. `source` is how messages call it."""

    source: str
    values: Values


def merge(layers: Sequence[Layer]) -> Values:
    """Return the settings of all layers; a later one wins, table by table."""
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


def validate(layers: Sequence[Layer]) -> TrainConfig:
    """Return the config that the layers make. Raise `ConfigError` that names the option and the layer of a bad value."""
    try:
        return TrainConfig.model_validate(merge(layers))
    except ValidationError as error:
        first = error.errors()[0]
        # A union adds the type it tried to the location, so the option is the longest known beginning of it.
        known = {*option_names(), *flat(merge(layers))}
        path = [str(part) for part in first["loc"]]
        while len(path) > 1 and ".".join(path) not in known:
            path.pop()
        several = isinstance(first["input"], Mapping)
        where = (
            "bad settings" if several else f"bad value for {'.'.join(path)!r} in {source_of(path, layers)}"
        )
        raise ConfigError(f"{where}: {problem(error)}") from error


def source_of(path: Sequence[str], layers: Sequence[Layer]) -> str:
    """Return the name of the layer that an option's value is from."""
    for layer in reversed(layers):
        if ".".join(path) in flat(layer.values):
            return layer.source
    return "the defaults"


def recipes(given: Sequence[Layer]) -> tuple[list[Layer], list[str]]:
    """Return the layers below all that was chosen, and what to say of them.

    Several environments have the recipe of the first, with the arguments of each from its own, the longest answer of all,
    and splits apart only where all have the same.
    """
    env = merge(given).get("env", TrainConfig.model_fields["env"].default)
    names = names_in(env)
    for name in names:
        bring(name)
    if not names:
        validate([Layer(each.source, {"env": each.values["env"]}) for each in given if "env" in each.values])
    if len(names) < 2:
        return _recipe_layers(env, given), []
    found = {name: merge(_recipe_layers(name, [alone(layer, name) for layer in given])) for name in names}
    first = found[names[0]]
    models = {
        name: recipe.get("model", TrainConfig.model_fields["model"].default) for name, recipe in found.items()
    }
    if "model" not in merge(given) and len(set(models.values())) > 1:
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
    ours, chosen = flat(first), {_LONGEST, *flat(merge(given))}
    apart = {
        name for recipe in found.values() for name, value in flat(recipe).items() if ours.get(name) != value
    }
    if not apart - chosen:
        return mixed, []
    named = ", ".join(sorted(apart - chosen))
    return mixed, [f"settings are those of {source}; other recipes of them have other values of {named}"]


def names_in(env: object) -> list[str]:
    """Return the names of the environments that `env` stands for; of what is malformed none."""
    try:
        return [each.env for each in shares_in(env)] if isinstance(env, str) else []
    except ValueError:
        return []


def alone(layer: Layer, env: str) -> Layer:
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
    of_all, of_env = recipes / "hf" / "default.toml", recipes / "hf" / f"{env}.toml"
    found = (
        (of_all, "the recipe for pretrained models"),
        (recipe, source),
        (of_env, f"the recipe for pretrained models in {env}"),
    )
    for file, name in found:
        values = tomllib.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}
        variants += [(name, variant) for variant in values.pop("variant", [])]
        check_names(values, name)
        layers.append(Layer(name, values))
    for name, variant in variants:
        match = variant.pop("match")
        layer = Layer(f"{name} where {match}", variant)
        check_names(layer.values, layer.source)
        # Matched against what earlier variants made of it too, so that a later one may refine them.
        seen = validate([*layers, *given])
        values = flat({**seen.model_dump(), "env_args": env_args(seen), "engine": seen.engine})
        if match.keys() & {"size", "device"} and seen.engine == PRETRAINED:
            from trainer.models.sizes import size_and_device  # brings torch

            values |= size_and_device(seen)
        if _matches(match, {"size": "", "device": "", **values}, name):
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


def with_agent(given: list[Layer]) -> tuple[list[Layer], list[str]]:
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


def env_args(config: TrainConfig) -> Values:
    """Return the environment's arguments, of several environments a table each."""
    if len(config.shares) > 1:
        return {each.env: env_args(config.alone(each.env)) for each in config.shares}
    params = plugins.load_env(config.env).params
    return validated(params, config.env_args, f"argument of env {config.env!r}")


def validated(model: type[BaseModel], values: Mapping[str, Any], what: str) -> Values:
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
