"""Proof that weights arrived: a digest per tensor, taken on both sides and compared by `trainer.samplers.arrival`.

A digest is two sums of a tensor's bits modulo 2**64, one of them weighted by odd numbers that depend on the place: every
change of one element changes it, on every device alike, and half a billion parameters take milliseconds on a GPU. It finds
accidents, not forgeries. Names of tied tensors count each on its own: a head that should be tied and is not shows.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import torch

__all__ = ["Digests", "arrival_fault", "digests", "named_tensors", "precisions"]

Digests = dict[str, str]
"""By the tensor's name: its precision, a colon, and 32 hexadecimal digits."""
_PIECE, _CPU_PIECE = 1 << 24, 1 << 16
"""Elements looked at at once, which bounds the memory it takes; on a processor what its caches hold."""
_BITS = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def named_tensors(module: torch.nn.Module) -> dict[str, torch.Tensor]:
    """Return every parameter of a module by name, tied ones by each of their names."""
    return dict(module.named_parameters(remove_duplicate=False))


@torch.no_grad()
def digests(
    tensors: Mapping[str, Any], *, dtype: torch.dtype | Mapping[str, torch.dtype] | None = None
) -> Digests:
    """Return the digest of each tensor or host array, as it would be in precision `dtype`, by name or for all (None, or a
    name that is not there: as it is).

    The device is asked once for all of them.
    """
    named = {name: _tensor(value) for name, value in tensors.items()}
    wanted = {
        name: (dtype.get(name) if isinstance(dtype, Mapping) else dtype) or value.dtype
        for name, value in named.items()
    }
    sums = [_sums(value, wanted[name]) for name, value in named.items()]
    if not sums:
        return {}
    found = torch.stack([each.cpu() for each in sums]) if _mixed(sums) else torch.stack(sums).cpu()
    bits = found.numpy().view(np.uint64).tolist()
    return {
        name: f"{str(wanted[name]).removeprefix('torch.')}:{plain:016x}{weighted:016x}"
        for name, (plain, weighted) in zip(named, bits, strict=True)
    }


def arrival_fault(sent: Digests, arrived: Digests) -> str | None:
    """Return the first tensor that did not arrive as it was sent, in the sender's order, or None.

    A name that only the receiver has is another name of a tied tensor: its digest must be among the sender's.
    """
    for name, digest in sent.items():
        if arrived.get(name) != digest:
            return name
    known = set(sent.values())
    return next((name for name, digest in arrived.items() if name not in sent and digest not in known), None)


def precisions(found: Digests) -> dict[str, torch.dtype]:
    """Return the precision of each tensor that digests are of."""
    return {name: getattr(torch, digest.partition(":")[0]) for name, digest in found.items()}


def _tensor(value: Any) -> torch.Tensor:
    if isinstance(value, torch.Tensor):
        return value
    # PyTorch warns of arrays that it must not write to, such as those of Ray's object store.
    return torch.from_numpy(value if value.flags.writeable else np.array(value, order="C"))


def _mixed(sums: Iterable[torch.Tensor]) -> bool:
    return len({each.device for each in sums}) > 1


def _sums(tensor: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Return the two sums (int64, which wraps)."""
    flat = tensor.detach().reshape(-1)
    size = min(_CPU_PIECE if flat.device.type == "cpu" else _PIECE, len(flat))
    odd = torch.arange(1, 2 * size, 2, device=flat.device)
    found = []
    for start in range(0, len(flat), max(size, 1)):
        piece = flat[start : start + size].to(dtype)
        bits = piece.view(_BITS[piece.element_size()]).long()
        plain = bits.sum()
        found += [plain, (bits * odd[: len(bits)]).sum() + 2 * start * plain]
    return torch.stack(found).view(-1, 2).sum(0) if found else odd.new_zeros(2)
