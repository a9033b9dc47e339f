"""Find plugins by entry point. Built-in and third-party environments come in by this one door.

Groups: `ale.envs`, `ale.algorithms`, `ale.engines`; value `package.module:OBJECT`.
Loading is lazy: listing names imports no plugin.
"""

from __future__ import annotations

from functools import cache
from importlib.metadata import EntryPoint, entry_points

from pydantic import ValidationError

from rock_env.errors import InvalidArgument, nearest
from rock_env.spec import EnvParams, EnvSpec

__all__ = ["env_params", "load", "load_env", "names"]


@cache
def _group(group: str) -> dict[str, EntryPoint]:
    return {point.name: point for point in entry_points(group=group)}


def names(group: str) -> tuple[str, ...]:
    """Return the sorted names installed in `group`."""
    return tuple(sorted(_group(group)))


def load(group: str, name: str) -> object:
    """Import and return the plugin object.

    Raise `UnknownName` naming the nearest and all known names, or `InvalidArgument` if the plugin does not load.
    """
    kind = group.removeprefix("ale.").removesuffix("s")
    point = _group(group).get(name)
    if point is None:
        raise nearest(kind, name, _group(group))
    try:
        return point.load()
    except Exception as error:  # boundary: a third party's module runs here
        owner = point.dist.name if point.dist else "the package it comes with"
        remedy = f"Repair or update {owner}, or uninstall it."
        if isinstance(error, ModuleNotFoundError) and error.name:
            remedy = f"Install what it needs ({owner} may have an extra for it), or uninstall {owner}."
        raise InvalidArgument(
            f"the {kind} plugin {name!r} ({point.value}) does not load: {type(error).__name__}: {error}. {remedy}"
        ) from error


def load_env(name: str) -> EnvSpec:
    """Return the `EnvSpec` installed as `name`. Raise `UnknownName`, or `InvalidArgument` for a wrong object."""
    spec = load("ale.envs", name)
    if not isinstance(spec, EnvSpec):
        raise InvalidArgument(
            f"environment plugin {name!r} is not an EnvSpec: got {type(spec).__name__}. "
            "Its entry point must name an object of type rock_env.spec.EnvSpec."
        )
    return spec


def env_params(spec: EnvSpec, params_json: str) -> EnvParams:
    """Validate an environment's arguments. Raise `UnknownName` or `InvalidArgument`, naming field and remedy."""
    try:
        return spec.params.model_validate_json(params_json or "{}")
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(str(part) for part in first["loc"])
        if first["type"] == "extra_forbidden":
            raise nearest(f"argument of environment {spec.name}", field, spec.params.model_fields) from error
        raise InvalidArgument(
            f"bad argument {field or 'arguments'!r} of environment {spec.name}: {first['msg']}, "
            f"got {first['input']!r}. See `ale env show {spec.name}`."
        ) from error
