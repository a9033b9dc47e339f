"""What GPUs can do at most, by their name, and the device that a benchmark of them has. Needs torch."""

from __future__ import annotations

import re
from dataclasses import dataclass
from time import perf_counter
from typing import Any

import torch

from benchmarks.models import qwen3, smol_config

__all__ = ["CHIPS", "Day", "rates_of"]

CHIPS = {
    "B200": (2_250e12, 8.0e12),
    "H200 NVL": (835e12, 4.8e12),
    "H200": (989e12, 4.8e12),
    "H100 PCIe": (756e12, 2.0e12),
    "H100 NVL": (835e12, 3.9e12),
    "H100": (989e12, 3.35e12),
    "A100-SXM4-80GB": (312e12, 2.039e12),
    "A100 80GB": (312e12, 1.935e12),
    "A100": (312e12, 1.555e12),
    "L40S": (362e12, 0.864e12),
    "L4": (121e12, 0.3e12),
    "RTX 4090": (165e12, 1.008e12),
}
"""Dense bfloat16 operations and bytes of memory a second, by makers' data sheets. The first that a name has counts."""


def rates_of(name: str) -> tuple[float, float] | None:
    """Return a device's rates; None for one that the table does not know."""
    return next((rates for chip, rates in CHIPS.items() if re.search(rf"\b{chip}\b", name)), None)


@dataclass(frozen=True, slots=True)
class Day:
    """The device, how large its models are, and where SmolLM2 is."""

    device: str
    dry: bool
    model: str = "smollm2"

    @property
    def on_gpu(self) -> bool:
        return self.device != "cpu"

    @property
    def rates(self) -> tuple[float, float] | None:
        return rates_of(torch.cuda.get_device_name(self.device)) if self.on_gpu else None

    def config(self, name: str, context: int) -> Any:
        """Return the configuration of `qwen3` or `smollm2`; in a dry run of a small Qwen3."""
        return (
            qwen3("tiny" if self.dry else "0.6b", context) if self.dry or name == "qwen3" else smol_config(30)
        )

    def done(self) -> float:
        """Wait for the device; return the time."""
        if self.on_gpu:
            torch.cuda.synchronize()
        return perf_counter()

    def seconds_of(self, act: Any) -> float:
        """Return how long a function and what it began on the device took."""
        start = self.done()
        act()
        return self.done() - start

    def free(self) -> float | None:
        """Return the device's free memory in GB; None on the processor."""
        return round(torch.cuda.mem_get_info()[0] / 1e9, 3) if self.on_gpu else None
