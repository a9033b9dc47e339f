"""`ale env list` and `ale env show`: what is installed, and what it takes.

Called by `ale.cli`. Reads plugins; never runs an environment.
"""

from __future__ import annotations

from importlib import resources
from typing import Any

from pydantic.fields import FieldInfo

from ale.terminal import print_table, stdout
from rock_env import plugins
from rock_env.errors import RockError
from rock_env.spec import EnvSpec

__all__ = ["list_command", "show_command"]


def list_command() -> None:
    """Print one line per installed environment."""
    rows = [_row(name) for name in plugins.names("ale.envs")]
    print_table(("name", "version", "resets", "sandbox", "what it is"), rows)


def show_command(name: str) -> None:
    """Print an environment's arguments, its splits and its README. Raise `UnknownName`."""
    spec = plugins.load_env(name)
    out = stdout()
    out.print(f"{spec.key}: {spec.summary}\n")
    fields = spec.params.model_fields.items()
    rows = [(key, _type(field), _default(field), field.description or "") for key, field in fields]
    if rows:
        print_table(("argument", "type", "default", "meaning"), rows)
    else:
        out.print("It takes no arguments.")
    if all(not field.is_required() for _, field in fields):
        source = spec.tasks(spec.params())
        counts = ", ".join(f"{source.count(split)} {split}" for split in source.splits)
        out.print(f"\nTasks with the default arguments: {counts}")
    if readme := _readme(spec):
        out.print(f"\n{readme}")


def _row(name: str) -> tuple[str, ...]:
    try:
        spec = plugins.load_env(name)
    except RockError as error:  # a third party's defect must not hide the others
        return name, "", "", "", f"broken plugin: {error}"
    resets = "snapshot" if spec.snapshots else "replay" if spec.replayable else "none"
    return spec.name, spec.version, resets, "yes" if spec.sandbox else "no", spec.summary


def _type(field: FieldInfo) -> str:
    annotation: Any = field.annotation
    if isinstance(annotation, type):
        return annotation.__name__
    text = str(annotation).replace("typing.", "")
    if text.startswith("Literal["):
        return text.removeprefix("Literal[").removesuffix("]").replace("'", "").replace(", ", "|")
    return text


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "(required)"
    value = field.get_default(call_default_factory=False)
    return "" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


def _readme(spec: EnvSpec) -> str:
    """Return the README beside the plugin, or in a package above it; plugins need not have one."""
    package = spec.params.__module__
    while package:
        package = package.rpartition(".")[0]
        if package:
            file = resources.files(package) / "README.md"
            if file.is_file():
                return file.read_text(encoding="utf-8")
    return ""
