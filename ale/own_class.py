"""`--env my_module:MyEnv`: a class of the user's, imported and known to this process under the name that was typed.

Called wherever the command line takes an environment's name. A server never comes here: what callers name is not imported.
"""

from __future__ import annotations

import importlib
import sys
from dataclasses import replace
from pathlib import Path

from rock_env import plugins
from rock_env.errors import InvalidArgument, nearest
from rock_env.games.own import ClassParams, class_env
from rock_env.spec import EnvSpec

__all__ = ["bring", "is_class"]


def bring(env: str) -> None:
    """Let this process know the environment `module:NAME` or `file.py:NAME`; do nothing for any other name.

    NAME is a class (`rock_env.games.own.class_env`) or an `EnvSpec`. The module is looked for in this folder, too. Raise
    `InvalidArgument` where it is not there, does not load or is neither.
    """
    place, colon, attribute = env.rpartition(":")
    if not colon and not plugins.knows_env(env):
        _check_named(env)
    if not colon or plugins.knows_env(env) or not attribute.isidentifier():
        return
    file = Path(place).absolute() if place.endswith(".py") else None
    if file and not file.is_file():
        raise InvalidArgument(
            f"environment {env!r} does not load: got no file {place}, expected one with the class."
        )
    module = file.stem if file else place
    if not all(part.isidentifier() for part in module.split(".")):
        return
    folder = str(file.parent if file else Path.cwd())
    if folder not in sys.path:
        sys.path.append(folder)  # other processes get this path, too
    try:
        there = importlib.import_module(module)
    except ModuleNotFoundError as error:
        hosted = ", ".join(f"{library}:ID" for library in plugins.names("ale.libraries"))
        remedy = "Install what it imports."
        if error.name == module.partition(".")[0]:
            remedy = (
                f"Run this in the folder where {module} lies (this one is {folder}), or name a module that is installed; "
                f"environments of other libraries are {hosted}."
            )
        raise InvalidArgument(f"environment {env!r} does not load: {error}. {remedy}") from error
    except Exception as error:  # named boundary: a user's own module
        raise InvalidArgument(
            f"environment {env!r} does not load: {type(error).__name__}: {error}."
        ) from error
    _check_file(env, module, file)
    found = getattr(there, attribute, None)
    if found is None:
        classes = [name for name, each in vars(there).items() if isinstance(each, type | EnvSpec)]
        raise nearest(f"class of the module {module!r}", attribute, classes)
    if isinstance(found, type):
        found = class_env(found, env)
    if not isinstance(found, EnvSpec):
        raise InvalidArgument(
            f"{env!r} is an object of type {type(found).__name__}, expected a class with reset and step, or an EnvSpec."
        )
    plugins.give({("ale.envs", env): replace(found, name=env)})


def is_class(env: str) -> bool:
    """Return whether the environment of this name, one of a run's, was given as a class."""
    return ("ale.envs", env) in plugins.own() and issubclass(plugins.load_env(env).params, ClassParams)


def _check_named(env: str) -> None:
    """Raise `InvalidArgument` for a file without one of its classes."""
    file = env if env.endswith(".py") else f"{env}.py"
    if Path(file).is_file():
        raise InvalidArgument(
            f"the environment {env!r} is a file: expected a class of {file}, too. Name one, as in --env {env}:MyEnv."
        )


def _check_file(env: str, module: str, file: Path | None) -> None:
    """Raise `InvalidArgument` where another module of the file's name is the one that Python finds."""
    there = getattr(sys.modules[module], "__file__", None)
    if file is not None and (there is None or Path(there).resolve() != file.resolve()):
        raise InvalidArgument(
            f"environment {env!r}: Python finds the module {module!r} at {there}. Rename {file.name}."
        )
