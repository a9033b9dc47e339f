"""What is read of a pretrained model of Transformers: its parts, its config, and how long its context is."""

from __future__ import annotations

import http.client
import logging
import ssl
import tomllib
import urllib.error
import urllib.request
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

from huggingface_hub import constants
from safetensors import SafetensorError

from rock_env.errors import InvalidArgument

__all__ = ["known_models", "max_context", "model_config", "read", "why_no_hub"]

_HUB_S = 5.0
"""A hub that answers later than this is asked for nothing: its own client would ask again for minutes, silently."""


def read(kind: str, model: str, **how: Any) -> Any:
    """Load part of a model. Raise `InvalidArgument` with the remedy when it is missing, unknown or offline.

    A hub that cannot be reached is asked once in a process; what was downloaded before is found all the same.
    """
    import transformers

    transformers.utils.logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    logging.getLogger("huggingface_hub").setLevel(logging.ERROR)  # it reports every retry of a download
    here = how.get("local_files_only") or Path(model).is_dir() or constants.HF_HUB_OFFLINE
    away = "" if here else why_no_hub(constants.ENDPOINT)
    how |= {"local_files_only": True} if away else {}
    try:
        return getattr(transformers, kind).from_pretrained(model, **how)
    except (OSError, ValueError, KeyError, ImportError, SafetensorError) as error:
        said = str(error).strip().splitlines()
        reason = said[0].rstrip(".") if said else type(error).__name__
        if away:
            reason = (
                f"it is not whole on this machine, and the hub {constants.ENDPOINT} cannot be reached: {away}"
            )
        raise InvalidArgument(
            f"cannot load model {model!r}: {reason}. Expected 'tiny', a folder with config.json, tokenizer and weights, or "
            "a Hugging Face id. Without network access download the model first and pass its folder (--model DIR)."
        ) from error


@cache
def why_no_hub(address: str) -> str:
    """Return why the hub does not answer, "" where it does; by the proxy of the environment, if there is one."""
    try:
        with urllib.request.urlopen(urllib.request.Request(address, method="HEAD"), timeout=_HUB_S):
            return ""
    except urllib.error.HTTPError:  # it answered
        return ""
    except (OSError, ValueError, http.client.HTTPException) as error:
        reason = getattr(error, "reason", error)
        # Its client may know other authorities than we do.
        return (
            "" if isinstance(reason, ssl.SSLError) else " ".join(str(reason).split()) or type(reason).__name__
        )


def model_config(model: str) -> Any:
    """Return the Transformers config of a model on this machine, or of what `known_models.toml` says of it.

    Raise `InvalidArgument` for any other.
    """
    try:
        return read("AutoConfig", model, local_files_only=True)
    except InvalidArgument:
        about = known_models().get(model)
        if about is None:
            raise
        from transformers import AutoConfig

        return AutoConfig.for_model(about["kind"], **{name: about[name] for name in about if name != "kind"})


@cache
def known_models() -> dict[str, dict[str, Any]]:
    """Return what `known_models.toml` says of models, by their ids of Hugging Face."""
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
