"""LoRA: small matrices beside a frozen model's linear layers train in place of its weights. By the library `peft`.

Used by the `hf` engine where its option `lora_rank` or `adapter` is set. Checkpoints hold the adapters alone. Samplers get
the whole model's weights with the adapters added in, so that they need not know of adapters. Source: arXiv 2106.09685.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError

from rock_env.errors import InvalidArgument
from trainer.errors import Halted
from trainer.learners.spread import PLAIN, Placement

__all__ = ["ADAPTER_FOLDER", "Adapters"]

ADAPTER_FOLDER = "adapter"
"""Where an exported model keeps its adapters, in the format of `peft`."""
_NAME = "default"
_APART, _ROUNDED = 1e-2, 2.0**-22
"""What rounding may leave of the difference between factors and merged weight: of the product, of the weight."""


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
    def merged(self, placement: Placement = PLAIN) -> dict[str, NDArray[Any]]:
        """Return the whole model's weights with the adapters added in, as float32 host arrays by its own names.

        Those of layers without an adapter are views where one process has them on the host. Raise `Halted` where one does
        not have its adapter in it. Joint among ranks.
        """
        adapted = {
            f"{name}.weight": module
            for name, module in self._wrapped.get_base_model().named_modules()
            if _NAME in getattr(module, "lora_A", ())
        }
        for name, _ in self.named_parameters():
            if f"{name.partition('.lora_')[0]}.weight" not in adapted:
                raise Halted(
                    f"{name!r} trains and is in no merged weight: samplers would never get it. Expected adapters of linear "
                    "layers only: choose lora_targets, or an adapter, without it."
                )
        merged = {}
        for name, value in self._frozen():
            layer = adapted.get(name)
            weight = (
                placement.whole(value).float() if layer is None else _merged(name, value, layer, placement)
            )
            merged[name] = weight.cpu().numpy()
        return merged

    @contextmanager
    def showing(self, weights: Mapping[str, NDArray[Any]], placement: Placement = PLAIN) -> Iterator[None]:
        """Compute with weights that `merged` gave, of this or an earlier moment; afterwards all is as before, bit for bit.

        Raise `InvalidArgument` where they belong to another model. Joint among ranks.
        """
        with self._wrapped.disable_adapter(), placement.showing(dict(self._frozen()), weights):
            yield

    @torch.no_grad()
    def export(self, folder: Path, placement: Placement = PLAIN, *, write: bool = True) -> None:
        """Write the whole model for Transformers into `folder`, and its adapters for `peft` into a folder of it.

        Joint among ranks, of which one is to `write`.
        """
        model = self._wrapped.get_base_model()
        weights = {name: torch.from_numpy(np.array(value)) for name, value in self.merged(placement).items()}
        own = {
            name: placement.whole(value).cpu()
            for name, value in self._wrapped.named_parameters()
            if ".lora_" in name
        }
        if write:
            model.save_pretrained(folder, state_dict=weights)
            self._wrapped.save_pretrained(folder / ADAPTER_FOLDER, state_dict=own)

    def _frozen(self) -> Iterator[tuple[str, torch.nn.Parameter]]:
        for name, value in self._wrapped.get_base_model().named_parameters():
            if not value.requires_grad and ".lora_" not in name:
                yield name.replace(".base_layer.", "."), value


def _merged(name: str, value: torch.Tensor, layer: Any, placement: Placement) -> torch.Tensor:
    """Return a layer's weight with its adapter added in, once a vector has gone both ways (Freivalds' check)."""
    factors = [layer.lora_A[_NAME].weight, layer.lora_B[_NAME].weight]
    with placement.together([value, *factors]):
        merged = placement.whole(value).float() + placement.whole(layer.get_delta_weight(_NAME)).float()
        added = merged - placement.whole(value).float()
        inner, outer = (placement.whole(factor).float() for factor in factors)
    if layer.fan_in_fan_out:  # GPT-2 keeps its weights the other way round
        added = added.T
    signs = torch.randint(2, added.shape[1:], generator=torch.Generator().manual_seed(0)) * 2.0 - 1.0
    signs = signs.to(value.device)
    expected = layer.scaling[_NAME] * (outer @ (inner @ signs))
    apart, most = (added @ signs - expected).norm(), _APART * expected.norm() + _ROUNDED * merged.norm()
    if not apart <= most:
        raise Halted(
            f"the merged weight {name!r} does not have its adapter in it: what it adds to a vector is not what lora_A and "
            f"lora_B of the layer add, got {float(apart):.3g} apart, expected at most {float(most):.3g}. What was saved is "
            "intact. Continue with --resume; if it happens again, with another version of peft."
        )
    return merged


def _peft() -> Any:
    try:
        import peft
    except ImportError as error:
        raise InvalidArgument(
            f"LoRA needs the package peft: {error}. Install it: pip install 'ale-rl[lora]'."
        ) from error
    return peft
