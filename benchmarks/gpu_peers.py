"""What stands beside ALE on one device (vLLM, TRL), and a run of SmolLM2. Parts of `benchmarks.gpu_day`."""

from __future__ import annotations

import tempfile
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from typing import Any

import torch

from ale.training.reading import read_metrics
from benchmarks.chips import Day
from benchmarks.engines import vllm_of
from benchmarks.gpu_sampler import CONTEXT, bytes_of, decoding, model_of, sleeping
from benchmarks.parts import Pieces
from benchmarks.runs import train
from trainer.models.named import named_models

_STOPS_S = 45.0
"""What a run gets to save and end."""
RUN = (
    "engine_options.dtype=bfloat16 rollout.engines=1 rollout.batching=eager rollout.groups_per_step=8 "
    "sampling.max_tokens=16 eval.every=10"
)
DRY_RUN = "rollout.groups_per_step=4 warmup.trajectories=1 eval.tasks=4 eval.progress_tasks=4"


def device(day: Day, seconds: float) -> Pieces:
    """Say what it is measured on."""
    yield "device", partial(named, day)


def named(day: Day) -> dict[str, Any]:
    if not day.on_gpu:
        return {"name": "cpu", "torch": torch.__version__}
    properties = torch.cuda.get_device_properties(day.device)
    found = {"name": properties.name, "memory_gb": round(properties.total_memory / 1e9, 1)}
    found |= {"torch": torch.__version__, "cuda": torch.version.cuda}
    return found if day.rates else {**found, "no_mfu": "this device is not in benchmarks.chips"}


def peers(day: Day, seconds: float) -> Pieces:
    """Measure TRL's step, and vLLM's decoding and sleep, where they are installed."""
    yield "trl", partial(steps, day)
    if find_spec("vllm") is None:
        yield "vllm", lambda: {"missing": "vLLM is not installed here: pip install 'ale-rl[train,vllm]'"}
    else:
        model = model_of(day)
        weights = bytes_of(model)
        batch = vllm_of(model, CONTEXT, dtype="bfloat16", rows=64, cache_bytes=1 << (28 if day.dry else 34))
        for rows in (1, 64):
            yield f"vllm_{rows}", partial(decoding, day, batch, weights, rows)
        yield "vllm_sleep", partial(sleeping, day, batch)


def steps(day: Day) -> dict[str, Any]:
    """Take steps of GRPO by ALE, plain torch and TRL in turns."""
    from benchmarks import train_step  # which sets the threads of who imports it

    missing = train_step.missing_trl()
    size, rounds = ("0_16m", 1) if day.dry else ("0_3b", 5)
    found = train_step.measured(size, rounds, missing, device=day.device)
    return {**found, "missing": missing} if missing else found


def smollm2(day: Day, seconds: float) -> Pieces:
    """Train SmolLM2 in frozen_lake; in a dry run the tiny engine."""
    known = named_models().get(day.model)
    folder = known.folder if known else Path(day.model)
    if not day.dry and not (folder / "config.json").is_file():
        yield "run", lambda: {"missing": f"no model in {folder}: ale model get smollm2, or --model FOLDER"}
        return
    model, steps, settings = ("tiny", "2", DRY_RUN) if day.dry else (str(folder), "40", RUN)
    words = [word for setting in settings.split() for word in ("-s", setting)]
    yield "run", partial(curve, ["--model", model, "--steps", steps, *words], seconds)


def curve(words: list[str], seconds: float) -> dict[str, Any]:
    """Train, and return the reward of each step and the held-out success, of what there was time for."""
    with tempfile.TemporaryDirectory() as place:
        run = Path(place) / "run"
        arguments = ["--env", "frozen_lake", "--seed", "0", *words]
        ended = train(run, arguments, threads=4, limit_s=max(1.0, seconds - _STOPS_S))
        rows = list(read_metrics(run)) if run.is_dir() else []
    learned = [row for row in rows if row["kind"] == "train"]
    found: dict[str, Any] = {"arguments": " ".join(words), "all_steps": ended, "steps": len(learned)}
    for name in ("reward", "rollout_s", "learn_s"):
        found[name] = [round(row[name], 3) for row in learned]
    held_out = {row["step"]: round(row["success"], 3) for row in rows if row["kind"] == "eval"}
    found["step_s"] = (
        round(median(row["rollout_s"] + row["learn_s"] for row in learned), 2) if learned else None
    )
    return {**found, "held_out_success": held_out}
