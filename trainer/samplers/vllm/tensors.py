"""The weights that a vLLM model computes with, by the names that checkpoints have for them.

vLLM joins tensors (query, key and value; gate and up) and pads the vocabulary. What is given here are views into its own
memory: a copy into one is what the model computes with from then on, and a digest of one is of that.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch

from rock_env.errors import InvalidArgument

__all__ = ["check_given", "computing_with_weights", "named_views"]


def named_views(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    """Return every parameter by its name in a checkpoint, tied ones by each of their names.

    Raise `InvalidArgument` where the model has packed a parameter, so that its values are nowhere to be read.
    """
    joined: Mapping[str, list[str]] = getattr(model, "packed_modules_mapping", {})
    found: dict[str, torch.Tensor] = {}
    for place, module in model.named_modules():
        above, _, own = place.rpartition(".")
        for name, parameter in module.named_parameters(recurse=False):
            if not parameter.numel():
                raise InvalidArgument(
                    f"vLLM keeps {place}.{name} in a packed form only, so nobody can tell which weights it has. Name a "
                    "model that is not quantised, or sample with hf."
                )
            if own in joined:
                parts = parameter.data.split(_rows(module), dim=0)
                found |= {
                    f"{above}.{part}.{name}": view for part, view in zip(joined[own], parts, strict=True)
                }
            else:
                found[f"{place}.{name}"] = parameter.data[: getattr(module, "org_vocab_size", None)]
    return found


def _rows(module: Any) -> list[int]:
    """Return how many rows of a joined parameter are of each of its parts."""
    return [int(rows) for rows in module.output_sizes]


def check_given(views: Mapping[str, torch.Tensor], given: Mapping[str, Any]) -> None:
    """Raise `InvalidArgument` unless `given` names every tensor once; tied ones have one name."""
    adapters = [name for name in given if "lora_" in name]
    if adapters:
        raise InvalidArgument(
            f"the learner sends LoRA factors, such as {adapters[0]!r}, and the vllm sampler takes whole weights only. "
            "Send the model's weights with the adapters added in, as the hf learner does."
        )
    shown = {views[name].data_ptr() for name in given if name in views}
    odd = [name for name in given if name not in views]
    odd += [name for name, view in views.items() if name not in given and view.data_ptr() not in shown]
    if odd:
        raise InvalidArgument(
            f"the weights do not belong to this model: {len(odd)} names differ, among them {sorted(odd)[:3]}. Give the "
            "sampler and the learner the same model."
        )


@contextmanager
def computing_with_weights() -> Iterator[None]:
    """Let models that vLLM builds in the body compute with their weights themselves.

    Its CPU build otherwise packs a copy of each for its kernels and drops the weight; the copy of a tied output layer then
    stays as it was when new weights arrive, without a word. On a GPU nothing is packed, and this does nothing.
    """
    from vllm.model_executor.layers import utils

    dispatch = utils.dispatch_cpu_unquantized_gemm

    def plain(layer: Any, remove_weight: bool) -> None:
        if layer.weight.is_meta or layer.weight.ndim != 2:
            dispatch(layer, remove_weight)
        else:
            layer.cpu_linear = torch.nn.functional.linear

    utils.dispatch_cpu_unquantized_gemm = plain
    try:
        yield
    finally:
        utils.dispatch_cpu_unquantized_gemm = dispatch
