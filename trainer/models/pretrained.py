"""What is read of a pretrained model of Transformers: its parts, its config, and how long its context is."""

from __future__ import annotations

import logging
import tomllib
from functools import cache
from importlib import resources
from typing import Any

from safetensors import SafetensorError

from rock_env.errors import InvalidArgument

__all__ = ["max_context", "model_config", "read"]


def read(kind: str, model: str, **how: Any) -> Any:
    """Load part of a model. Raise `InvalidArgument` with the remedy when it is missing, unknown or offline."""
    import transformers

    transformers.utils.logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    logging.getLogger("huggingface_hub").setLevel(logging.ERROR)  # it reports every retry of a download
    try:
        return getattr(transformers, kind).from_pretrained(model, **how)
    except (OSError, ValueError, KeyError, ImportError, SafetensorError) as error:
        reason = str(error).strip().splitlines()
        raise InvalidArgument(
            f"cannot load model {model!r}: {reason[0].rstrip('.') if reason else type(error).__name__}. Expected 'tiny', a "
            "folder with config.json, tokenizer and weights, or a Hugging Face id. Without network access download "
            "the model first and pass its folder."
        ) from error


def model_config(model: str) -> Any:
    """Return the Transformers config of a model on this machine, or of what `known_models.toml` says of it.

    Raise `InvalidArgument` for any other.
    """
    try:
        return read("AutoConfig", model, local_files_only=True)
    except InvalidArgument:
        about = _known().get(model)
        if about is None:
            raise
        from transformers import AutoConfig

        return AutoConfig.for_model(about["kind"], **{name: about[name] for name in about if name != "kind"})


@cache
def _known() -> dict[str, dict[str, Any]]:
    text = (resources.files("trainer.models") / "known_models.toml").read_text(encoding="utf-8")
    return tomllib.loads(text)


def max_context(model: str, wanted: int | None, config: Any) -> int:
    """Return how many tokens prompt and completion may have together. Raise `InvalidArgument`."""
    known = getattr(config, "max_position_embeddings", None)
    if wanted is None:
        if known is None:
            raise InvalidArgument(
                f"model {model!r} does not say how long its context is. Set the engine option max_context."
            )
        return int(known)
    if known is not None and wanted > known:
        raise InvalidArgument(
            f"max_context {wanted} is more than the {known} tokens model {model!r} takes. Lower it."
        )
    return wanted
