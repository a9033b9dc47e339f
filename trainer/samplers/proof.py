"""Proof that weights arrived: a digest per tensor on both sides, and what the first probe says.

A digest is two sums of a tensor's bits modulo 2**64, one of them weighted by odd numbers that depend on the place: every
change of one element changes it, on every device alike, and half a billion parameters take milliseconds on a GPU. It finds
accidents, not forgeries. Names of tied tensors count each on its own: a head that should be tied and is not shows.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import torch

__all__ = ["Digests", "arrival_fault", "digests", "named_tensors"]

Digests = dict[str, str]
"""By the tensor's name: 32 hexadecimal digits."""
_PIECE = 1 << 24
"""Elements looked at at once, which bounds the memory it takes."""
_BITS = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def named_tensors(module: torch.nn.Module) -> dict[str, torch.Tensor]:
    """Return every parameter of a module by name, tied ones by each of their names."""
    return dict(module.named_parameters(remove_duplicate=False))


@torch.no_grad()
def digests(tensors: Mapping[str, Any], *, dtype: torch.dtype | None = None) -> Digests:
    """Return the digest of each tensor or host array, as it would be in precision `dtype` (None: as it is).

    The device is asked once for all of them.
    """
    sums = [_sums(_tensor(value), dtype) for value in tensors.values()]
    if not sums:
        return {}
    found = torch.stack([each.cpu() for each in sums]) if _mixed(sums) else torch.stack(sums).cpu()
    bits = found.numpy().view(np.uint64).tolist()
    return {
        name: f"{plain:016x}{weighted:016x}" for name, (plain, weighted) in zip(tensors, bits, strict=True)
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


def _tensor(value: Any) -> torch.Tensor:
    return value if isinstance(value, torch.Tensor) else torch.from_numpy(np.array(value, order="C"))


def _mixed(sums: Iterable[torch.Tensor]) -> bool:
    return len({each.device for each in sums}) > 1


def _sums(tensor: torch.Tensor, dtype: torch.dtype | None) -> torch.Tensor:
    """Return the two sums (int64, which wraps)."""
    flat = tensor.detach().reshape(-1)
    found = torch.zeros(2, dtype=torch.int64, device=flat.device)
    for start in range(0, len(flat), _PIECE):
        piece = flat[start : start + _PIECE]
        if dtype is not None:
            piece = piece.to(dtype)
        bits = piece.view(_BITS[piece.element_size()]).long()
        place = torch.arange(start, start + len(bits), device=flat.device)
        found[0] += bits.sum()
        found[1] += (bits * (2 * place + 1)).sum()
    return found
