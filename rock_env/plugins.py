"""Find plugins by entry point, and environments also among those a user registered. All come in by this one door.

Groups: `ale.envs`, `ale.libraries`, `ale.algorithms`, `ale.engines`, `ale.parallelisms`, `ale.backends`, `ale.rewards`,
`ale.agents`, `ale.scans`, `ale.observers`; value `package.module:OBJECT`. A script may also give objects of its own to this
process (`give`). A name that stands for two things is refused, since records and runs say no more than the name. Loading is
lazy: listing names imports no plugin.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache, lru_cache
from importlib.metadata import EntryPoint, entry_points

from pydantic import ValidationError

from rock_env.arguments import problem
from rock_env.errors import InvalidArgument, UnknownName, nearest
from rock_env.spec import EnvLibrary, EnvParams, EnvSpec
from rock_env.tasksets import registered
from rock_env.tasksets.environment import make_env_spec
from rock_env.tasksets.registered import Registration

__all__ = [
    "NO_OWN",
    "Own",
    "env_names",
    "env_params",
    "give",
    "given",
    "knows_env",
    "load",
    "load_env",
    "load_library",
    "names",
    "own",
    "unknown_env",
]

Own = Mapping[tuple[str, str], object]
"""Objects that nobody installed: (group, name) -> plugin."""
NO_OWN: Own = {}
_own: dict[tuple[str, str], object] = {}


@cache
def _group(group: str) -> dict[str, EntryPoint]:
    return {point.name: point for point in entry_points(group=group)}


def _kind(group: str) -> str:
    """Return what an object of a group is called."""
    plural = group.removeprefix("ale.")
    return f"{plural[:-3]}y" if plural.endswith("ies") else plural.removesuffix("s")


def give(objects: Own) -> None:
    """Let this process find objects by name as if they were installed; a second one of a name takes the first one's place.

    Raise `InvalidArgument` for the name of something else that is installed or registered.
    """
    for (group, name), plugin in objects.items():
        registered_too = group == "ale.envs" and registered.known(name)
        if (name in _group(group) and load(group, name) is not plugin) or registered_too:
            raise InvalidArgument(
                f"the {_kind(group)} you gave has the name {name!r}, as one that is installed or registered here: a "
                "record would not say which it was. Give it another name."
            )
    _own.update((key, plugin) for key, plugin in objects.items() if key[1] not in _group(key[0]))


@contextmanager
def given(objects: Own) -> Iterator[None]:
    """Give objects to this process for the time of the block."""
    before = dict(_own)
    give(objects)
    try:
        yield
    finally:
        _own.clear()
        _own.update(before)


def own() -> Own:
    """Return what this process was given."""
    return dict(_own)


def names(group: str) -> tuple[str, ...]:
    """Return the sorted names known in `group`."""
    return tuple(sorted({*_group(group), *(name for where, name in _own if where == group)}))


def load(group: str, name: str) -> object:
    """Import and return the plugin object.

    Raise `UnknownName` naming the nearest and all known names, or `InvalidArgument` if the plugin does not load.
    """
    if (group, name) in _own:
        return _own[group, name]
    kind = _kind(group)
    point = _group(group).get(name)
    if point is None:
        raise nearest(kind, name, names(group))
    try:
        return point.load()
    except Exception as error:  # boundary: a third party's module runs here
        owner = point.dist.name if point.dist else "the package it comes with"
        remedy = f"Repair or update {owner}, or uninstall it."
        if isinstance(error, ModuleNotFoundError) and error.name:
            extra = ",".join(point.extras)
            remedy = (
                f"Install what it needs: pip install '{owner}[{extra}]'."
                if extra
                else f"Install what it needs ({owner} may have an extra for it), or uninstall {owner}."
            )
        raise InvalidArgument(
            f"the {kind} plugin {name!r} ({point.value}) does not load: {type(error).__name__}: {error}. {remedy}"
        ) from error


def env_names() -> tuple[str, ...]:
    """Return the sorted names of all environments, installed and registered."""
    return tuple(sorted({*names("ale.envs"), *registered.names()}))


def knows_env(name: str) -> bool:
    """Return whether there is an environment of this name."""
    return name in names("ale.envs") or registered.known(name) or _library_of(name) is not None


def _library_of(name: str) -> tuple[str, str] | None:
    """Split `library:id` where the part before the colon is a library that is hosted here."""
    library, colon, env_id = name.partition(":")
    return (library, env_id) if colon and library in names("ale.libraries") else None


def load_env(name: str) -> EnvSpec:
    """Return the environment of this name: installed, registered, or `library:id` of a hosted library.

    Raise `UnknownName`, or `InvalidArgument` for a wrong object and for a name that is both.
    """
    hosted = _library_of(name)
    if hosted is not None:
        return _from_library(*hosted)
    installed = name in names("ale.envs")
    if registered.known(name):
        if installed:
            raise InvalidArgument(
                f"the name {name!r} is that of an installed environment and of one that you registered. Remove yours "
                f"(`ale env remove {name}`); you can register it under another name."
            )
        return _registered(registered.find(name))
    if not installed:
        raise unknown_env(name, env_names())
    spec = load("ale.envs", name)
    if not isinstance(spec, EnvSpec):
        raise InvalidArgument(
            f"environment plugin {name!r} is not an EnvSpec: got {type(spec).__name__}. "
            "Its entry point must name an object of type rock_env.spec.EnvSpec."
        )
    return spec


def unknown_env(name: str, known: Iterable[str]) -> UnknownName:
    """Build the error for an environment that this process does not know."""
    error = nearest("environment", name, known)
    hosted = ", ".join(f"{library}:ID" for library in names("ale.libraries"))
    return UnknownName(
        f"{error.message}. Those of other libraries are {hosted}. Those that "
        f"`ale env register PATH` made are known on the machine where it was run, to "
        f"processes with the same ALE_HOME; that of the process which looked is {registered.home()}."
    )


@lru_cache(maxsize=256)
def _from_library(library: str, env_id: str) -> EnvSpec:
    return load_library(library).spec(env_id)


def load_library(name: str) -> EnvLibrary:
    """Return a hosted library. Raise as `load`."""
    found: EnvLibrary = load("ale.libraries", name)  # type: ignore[assignment]  # by its entry point
    return found


@lru_cache(maxsize=32)
def _registered(record: Registration) -> EnvSpec:
    return make_env_spec(record.name, record.version, registered.tasks_of(record))


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
            f"bad argument {field or 'arguments'!r} of environment {spec.name}: {problem(error)}. "
            f"See `ale env show {spec.name}`."
        ) from error
