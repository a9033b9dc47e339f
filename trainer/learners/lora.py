"""LoRA: small matrices beside a frozen model's linear layers train in place of its weights. By the library `peft`.

Used by the `hf` engine where its option `lora_rank` or `adapter` is set. Checkpoints hold the adapters alone. Samplers get
the whole model's weights with the adapters added in, so that they need not know of adapters. Source: arXiv 2106.09685.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError

from rock_env.errors import InvalidArgument

__all__ = ["ADAPTER_FOLDER", "Adapters"]

ADAPTER_FOLDER = "adapter"
"""Where an exported model keeps its adapters, in the format of `peft`."""
_NAME = "default"


class Adapters:
    """The adapters of a Transformers model, which is changed in place: its linear layers now add them to their results."""

    def __init__(self, wrapped: Any) -> None:
        self._wrapped = wrapped

    @staticmethod
    def fresh(model: Any, *, rank: int, alpha: float, targets: str, seed: int) -> Adapters:
        """Add adapters that change nothing yet; `targets` names layers, separated by commas, or is `all-linear`.

        The same seed gives the same adapters. Raise `InvalidArgument` for targets that the model has not.
        """
        peft = _peft()
        names = targets if targets == "all-linear" else [name.strip() for name in targets.split(",")]
        config = peft.LoraConfig(r=rank, lora_alpha=alpha, target_modules=names, task_type="CAUSAL_LM")
        try:
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(seed)
                return Adapters(peft.get_peft_model(model, config))
        except ValueError as error:
            raise InvalidArgument(
                f"cannot add LoRA to {type(model).__name__} with lora_targets={targets!r}: {error}. Expected "
                "'all-linear' or names of the model's linear layers such as 'q_proj,v_proj'."
            ) from error

    @staticmethod
    def read(model: Any, folder: str) -> Adapters:
        """Add the adapters of a folder in the format of `peft`. Raise `InvalidArgument` where they do not fit the model."""
        peft = _peft()
        if not (Path(folder) / "adapter_config.json").is_file():
            raise InvalidArgument(
                f"{folder} holds no adapter: it has no adapter_config.json. Expected a folder that peft wrote, such as "
                f"the {ADAPTER_FOLDER} of a model exported with LoRA."
            )
        try:
            return Adapters(peft.PeftModel.from_pretrained(model, folder, is_trainable=True))
        except (OSError, ValueError, RuntimeError, KeyError, TypeError, SafetensorError) as error:
            reason = str(error).strip().splitlines() or [type(error).__name__]
            raise InvalidArgument(
                f"cannot read the adapter {folder}: {reason[0]} Expected a LoRA adapter of this model in the format of peft."
            ) from error

    def named_parameters(self) -> Iterator[tuple[str, torch.nn.Parameter]]:
        """Return what trains."""
        model = self._wrapped.get_base_model()
        return ((name, value) for name, value in model.named_parameters() if value.requires_grad)

    @torch.no_grad()
    def merged(self) -> dict[str, NDArray[Any]]:
        """Return the whole model's weights with the adapters added in, as float32 host arrays by its own names.

        Those of layers without an adapter are views on a CPU.
        """
        deltas = {
            f"{name}.weight": module.get_delta_weight(_NAME)
            for name, module in self._wrapped.get_base_model().named_modules()
            if hasattr(module, "get_delta_weight") and _NAME in module.lora_A
        }
        return {
            name: (value.float() + deltas[name].float() if name in deltas else value.float()).cpu().numpy()
            for name, value in self._frozen()
        }

    @contextmanager
    def showing(self, weights: dict[str, NDArray[Any]]) -> Iterator[None]:
        """Compute with weights that `merged` gave, of this or an earlier moment; afterwards all is as before, bit for bit.

        Raise `InvalidArgument` where they belong to another model.
        """
        frozen = dict(self._frozen())
        if {name: value.shape for name, value in frozen.items()} != {n: w.shape for n, w in weights.items()}:
            raise InvalidArgument(
                "the weights do not belong to this model: names or shapes differ. Give them as `weights` returned them."
            )
        own = {name: value.detach().clone() for name, value in frozen.items()}
        with torch.no_grad(), self._wrapped.disable_adapter():
            try:
                for name, value in frozen.items():
                    value.copy_(torch.from_numpy(np.array(weights[name], copy=True)))
                yield
            finally:
                for name, value in frozen.items():
                    value.copy_(own[name])

    def export(self, folder: Path) -> None:
        """Write the whole model for Transformers into `folder`, and its adapters for `peft` into a folder of it."""
        model = self._wrapped.get_base_model()
        weights = {name: torch.from_numpy(np.array(value)) for name, value in self.merged().items()}
        model.save_pretrained(folder, state_dict=weights)
        self._wrapped.save_pretrained(folder / ADAPTER_FOLDER)

    def _frozen(self) -> Iterator[tuple[str, torch.Tensor]]:
        for name, value in self._wrapped.get_base_model().named_parameters():
            if not value.requires_grad and ".lora_" not in name:
                yield name.replace(".base_layer.", "."), value.detach()


def _peft() -> Any:
    try:
        import peft
    except ImportError as error:
        raise InvalidArgument(
            f"LoRA needs the package peft: {error}. Install it: pip install 'ale-rl[lora]'."
        ) from error
    return peft
