"""`ale advise`: what to train a model with on given GPUs, what that takes of their memory, and how fast it may be.

Choices are tried in an order of preference, and the first that fits is taken:

1. All weights before LoRA.
2. Of either, a file of `ale/recipes/gpu` for this model, then the `hf` sampler, then vLLM, which needs an environment of its
   own and gives its memory back while the learner learns. Where no sampler shares the learner's GPU, vLLM is not tried.
3. Of each, the longer context before the shorter one.
4. With several GPUs, half of them for the learner's ranks before all but one.

A choice fits although its estimate may be 15 % too low (`Fit.is_enough`), a file where `ale train` accepts it. If none does,
the first that `ale train` accepts is taken. Settings are resolved and estimated as `ale train --dry-run` does.
"""

from __future__ import annotations

import shlex
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from itertools import groupby
from pathlib import Path
from typing import Any

from ale import config as configuration
from ale.terminal import print_table, stdout
from ale.training.resources import resource_lines
from ale.waiting import waiting_for
from rock_env.errors import InvalidArgument, UnknownName, nearest
from trainer.config import PRETRAINED, TrainConfig, engine_of
from trainer.errors import ConfigError
from trainer.learners.memory import Shape
from trainer.models.chosen import check_model, memory_of, sampler_of
from trainer.models.fitting import Fit, available_bytes
from trainer.models.named import named_models, with_folder
from trainer.models.placed import bytes_in
from trainer.models.pretrained import known_models, max_context, model_config
from trainer.models.roles import at_once, together
from trainer.models.roles import sampler as sampler_role
from trainer.protocols.memory import Role

__all__ = [
    "Choice",
    "Model",
    "Owned",
    "advise_command",
    "advised",
    "choices",
    "owned_by",
    "shown",
    "speed_lines",
]

_CONTEXTS = (32_768, 16_384, 8_192, 4_096)
_ALL, _LORA = "all weights", "LoRA of rank 16"
_SIZES = (12, 16, 24, 32, 40, 48, 80, 96, 141, 192)
"""Memory of GPUs that there are, in GB."""
_COUNTS = (2, 4, 8)


@dataclass(frozen=True, slots=True)
class Owned:
    """What the user has to train with."""

    gb: int
    """Memory of each GPU, or what is free of this machine's where there is none, in GB (10^9 bytes)."""
    gpus: int
    """0: the processor alone."""

    def __str__(self) -> str:
        if not self.gpus:
            return f"a processor with {self.gb} GB free"
        return f"{self.gpus} GPUs of {self.gb} GB" if self.gpus > 1 else f"one GPU of {self.gb} GB"


def owned_by(gpu_gb: int, gpus: int) -> Owned:
    """Return what the user has; 0 GB is the processor alone, with this machine's free memory. Raise `ConfigError`."""
    if gpu_gb:
        return Owned(gpu_gb, gpus)
    if gpus > 1:
        raise ConfigError(
            f"--gpus {gpus} counts GPUs: got --gpu 0, expected the GB of each. Leave out one of both."
        )
    free = available_bytes()
    if free is None:
        raise ConfigError(
            "--gpu 0 asks for the processor, whose free memory this system does not say. Give --gpu GB."
        )
    return Owned(free // 10**9, 0)


@dataclass(frozen=True, slots=True)
class Model:
    """A Hugging Face model whose config is known here."""

    name: str
    """As the user typed it."""
    about: Any
    """Its Transformers config."""
    shape: Shape

    @staticmethod
    def of(name: str) -> Model:
        """Return the model of a name.

        Raise `UnknownName` for one that is not known here, and `ConfigError` for one that was not fetched or is not of `hf`.
        """
        if engine_of(name) != PRETRAINED:
            raise ConfigError(
                f"the model {name!r} needs no advice: got one of the engine {engine_of(name)!r}, expected a Hugging Face "
                f"model. It trains on a processor: ale train --model {name}"
            )
        if Path(name).is_dir() or name in named_models():
            check_model(name)
        try:
            about = model_config(with_folder({"model": name})["model"])
        except InvalidArgument:
            if Path(name).is_dir():
                raise
            raise UnknownName(
                f"{nearest('model', name, [*known_models(), *named_models()])}. For any other name the folder with its "
                "config.json."
            ) from None
        return Model(name, about, Shape.of(about))

    @property
    def has_experts(self) -> bool:
        """Return whether a token goes through some of its parameters only."""
        return bool(getattr(self.about, "num_experts", 0) or getattr(self.about, "num_local_experts", 0))


@dataclass(frozen=True, slots=True)
class Choice:
    """Settings that were tried."""

    trains: str
    words: Sequence[str]
    """Of the command line, behind `ale train`; `settings` follow, each behind `-s`."""
    settings: Sequence[str]
    config: TrainConfig
    known: Sequence[Role]
    fit: Fit
    """Of the fullest GPU, or of this machine, in bytes."""
    is_file: bool

    @property
    def fits(self) -> str:
        """Return `yes`, `barely` where `ale train` accepts it although the estimate may be too low, or `no`."""
        return "yes" if self.fit.is_enough else "barely" if self.fit.needed <= self.fit.room else "no"

    @property
    def is_taken(self) -> bool:
        """Return whether nothing after it is tried."""
        return self.fits == "yes" or (self.is_file and self.fits == "barely")

    @property
    def option(self) -> Mapping[str, Any]:
        """Return the learner's options."""
        return self.config.engine_options

    def row(self) -> tuple[str, ...]:
        """Return it as a row of the table."""
        each = {role.name: f"{role.total / 1e9:.1f} GB" for role in self.known}
        shared = len(self.config.placement.pool) < 2
        gpus = "shared" if shared else f"{self.option['ranks']} + {self.config.rollout.engines}"
        most = f"{self.fit.needed / 1e9:.1f} of {self.fit.room / 1e9:.0f} GB"
        name = "a recipe's file" if self.is_file else sampler_of(self.config)[0].name
        context = f"{self.option['max_context']:,}"
        return self.trains, name, context, gpus, each["learner"], each["sampler"], most, self.fits


def advise_command(name: str, gpu_gb: int, gpus: int, env: str | None) -> None:
    """Print the choices that were tried, the command to train with, its memory, and its speed as far as it was measured.

    Raise `ConfigError` where nothing fits, and what `Model.of` and the settings of `env` raise.
    """
    owned, env = owned_by(gpu_gb, gpus), env or TrainConfig().env
    with waiting_for("the estimates of the model's memory"):
        model = Model.of(name)
        tried, best = advised(model, owned, env)
    out = stdout()
    size = f"{model.shape.parameters / 1e9:.2f} billion parameters"
    out.print(f"{name}, {size}, on {owned}. Tried in order of preference:\n")
    heads = ("trains", "sampled by", "context", "GPUs", "learner", "sampler", "taken", "fits")
    print_table(heads, [choice.row() for choice in tried])
    if best is None:
        raise _nothing_fits(model, owned, env, tried)
    out.print(f"\nTrain with:\n\n{shown(best)}")
    if best.config.sampler:
        out.print("\nvLLM needs an environment of its own (docs/samplers.md).")
    if best.fits == "barely":
        out.print(
            "\nIt barely fits: an estimate may be 15 % too low. Lower optim.microbatch_tokens if memory runs out."
        )
    for line in [*resource_lines(best.config), "", *speed_lines(model, best)]:
        out.print(line)


def advised(model: Model, owned: Owned, env: str) -> tuple[list[Choice], Choice | None]:
    """Return the choices that were tried, and the one that is taken; None where nothing fits."""
    tried: list[Choice] = []
    for choice in choices(model, owned, env):
        tried.append(choice)
        if choice.is_taken:
            return tried, choice
    return tried, next((choice for choice in tried if choice.fits != "no"), None)


def shown(choice: Choice) -> str:
    """Return the command of a choice for a shell, one section of settings a line."""
    lines = [f"  ale train {shlex.join(choice.words)}"]
    for _, section in groupby(choice.settings, lambda setting: setting.partition("=")[0].partition(".")[0]):
        lines.append("    " + " ".join(f"-s {shlex.quote(setting)}" for setting in section))
    return " \\\n".join(lines)


def choices(model: Model, owned: Owned, env: str, *, least: bool = False) -> Iterator[Choice]:
    """Yield what there is to choose from, in the order of preference; `least`: only what takes least."""
    longest = max_context(model.name, None, model.about)
    contexts = [each for each in _CONTEXTS if each <= longest] or [longest]
    for trains in (_LORA,) if least else (_ALL, _LORA):
        for file in _files(model, owned, trains):
            yield _choice(trains, {"env": env}, [], owned, file)
        for sampler in ("hf", "vllm") if owned.gpus == 1 and not model.has_experts else ("hf",):
            for context in contexts[-1:] if least else contexts:
                for ranks in dict.fromkeys((max(1, owned.gpus // 2), max(1, owned.gpus - 1))):
                    settings = _settings(model, owned, trains, sampler, context, ranks)
                    named = {"env": env, "algo": "grpo", "model": model.name}
                    yield _choice(trains, named, settings, owned)


def _files(model: Model, owned: Owned, trains: str) -> Iterator[Path]:
    """Yield the recipes for this model whose GPUs the user has."""
    for file in sorted(Path(str(resources.files("ale") / "recipes" / "gpu")).glob("*.toml")):
        values = configuration.read_toml(file)
        pool, is_lora = values["placement"]["pool"], "lora_rank" in values["engine_options"]
        enough = sum(each["gpus"] for each in pool) <= owned.gpus
        enough = enough and all(each["memory_gb"] <= owned.gb for each in pool)
        if enough and values["model"] == model.name and is_lora == (trains == _LORA):
            yield file


def _choice(
    trains: str, named: Mapping[str, str], settings: Sequence[str], owned: Owned, file: Path | None = None
) -> Choice:
    config = configuration.resolve(options=named, overrides=settings, file=file).config
    known = memory_of(config)
    bundles = range(len(config.placement.pool))
    needed = max((bytes_in(config, known, number) for number in bundles), default=together(known, "cpu"))
    fit = Fit(needed, owned.gb * 10**9, "a GPU" if owned.gpus else "this machine")
    words = [word for name, value in named.items() for word in (f"--{name}", value)]
    words += ["--config", str(file)] if file else []
    return Choice(trains, words, settings, config, known, fit, file is not None)


def _settings(model: Model, owned: Owned, trains: str, sampler: str, context: int, ranks: int) -> list[str]:
    """Return the settings of a choice, as `-s` takes them. The sampler's cache has room for at least one whole row."""
    dtype, is_lora = "bfloat16" if owned.gpus else "float32", trains == _LORA
    bounds: dict[str, Any] = {"max_context": context, "cache_bytes": 10**15, "remembered_bytes": 0}
    parts = sampler_role(model.shape, "cuda", processes=1, half=owned.gpus > 0, rows=1, **bounds).parts
    spare = max(0, owned.gb * 10**9 * 85 // 100 - parts["weights"])
    cache = -(-max(parts["cache"], spare * 2 // 3 if owned.gpus > 1 else spare // 7) // 10**8) * 10**8
    held: dict[str, Any] = {"max_rows": 32, "cache_bytes": cache}
    engine = {"dtype": dtype, "checkpointing": "true", "max_context": context}
    engine["lora_rank"] = 16 if is_lora else 0  # said in any case: a recipe may have chosen it
    engine |= {} if owned.gpus else {"device": "cpu"}
    engine |= {"lora_targets": "q_proj,k_proj,v_proj,o_proj"} if is_lora and model.has_experts else {}
    engine |= {"ranks": ranks, "parallelism": "fsdp2"} if ranks > 1 else {}
    engine |= {**held, "remembered_bytes": cache // 3} if sampler == "hf" else {}
    engines = max(1, owned.gpus - ranks)
    tables: dict[str, dict[str, Any]] = {
        "engine_options": engine,
        "sampler_options": {} if sampler == "hf" else {"dtype": dtype, "max_context": context, **held},
        "optim": {"lr": "1e-5" if is_lora else "1e-6", "microbatch_tokens": context},
        "rollout": {"engines": engines, "workers": max(2, engines), "batching": "eager"},
        "placement": _placement(owned, ranks, engines),
    }
    told = [f"{table}.{name}={value}" for table, values in tables.items() for name, value in values.items()]
    return told if sampler == "hf" else [f"sampler={sampler}", *told]


def _placement(owned: Owned, ranks: int, engines: int) -> dict[str, Any]:
    if not owned.gpus:
        return {}
    bundles = ((ranks, ranks), (engines + max(2, engines), engines)) if owned.gpus > 1 else ((4, 1),)
    pool = ",".join(f"{{cpus={cpus},gpus={gpus},memory_gb={owned.gb}}}" for cpus, gpus in bundles)
    if owned.gpus == 1:
        return {"pool": f"[{pool}]", "layout": "colocated"}
    return {"pool": f"[{pool}]", "layout": "disaggregated", "strategy": "STRICT_PACK"}


def _nothing_fits(model: Model, owned: Owned, env: str, tried: Sequence[Choice]) -> ConfigError:
    """Return the error that says what lacks least, and which machines would do."""
    near = min(tried, key=lambda choice: choice.fit.needed)
    needed, room = near.fit.needed / 1e9, near.fit.room / 1e9
    more = [Owned(owned.gb, count) for count in _COUNTS if 0 < owned.gpus < count]
    larger = [Owned(size, max(1, owned.gpus)) for size in _SIZES if size > owned.gb or not owned.gpus]
    would = [
        next(
            (
                each
                for each in some
                if any(one.fits == "yes" for one in choices(model, each, env, least=True))
            ),
            None,
        )
        for some in (more, larger)
    ]
    told = " or ".join(str(each) for each in would if each) or "nothing that was tried"
    what = f"{near.trains} with a context of {near.option['max_context']:,} tokens"
    return ConfigError(
        f"{model.name} does not fit {owned}. What lacks least, {what}, is expected to take {needed:.1f} GB of "
        f"{near.fit.where}, which has {room:.0f} GB: {needed - room:.1f} GB too much. LoRA would fit {told}; or choose a "
        "smaller model."
    )


def speed_lines(model: Model, choice: Choice) -> list[str]:
    """Return the tokens/s of learner and sampler by the tables of `measured.toml`, or why none of them applies."""
    text = (resources.files("ale.training") / "measured.toml").read_text(encoding="utf-8")
    tables, part = tomllib.loads(text), {role.name: role.part for role in choice.known}["learner"]
    sizes = {"learner": part.tokens if part else 0, "sampler": at_once(choice.config)}
    sizes["sampler"] = min(sizes["sampler"], int(choice.option["max_rows"]))
    lines = ["tokens/s, which another GPU than the one named may not reach:"]
    for role, table in tables.items():
        if reason := _unmeasured(model, choice, role):
            lines.append(f"{role}: nothing measured applies, because {reason} ({table['page']}).")
            continue
        speeds = table[choice.trains if role == "learner" else "all"]
        rows = {int(tokens): speed for tokens, speed in speeds.items()}
        size = min(rows, key=lambda each: abs(each - sizes[role]))
        at = f"{size:,} {table['of']}" + ("" if size == sizes[role] else f", the nearest to {sizes[role]:,}")
        where = f"({table['page']}, commit {table['commit']}, {table['device']})"
        theirs = Shape.of(model_config(table["model"]))
        times = theirs.parameters / model.shape.parameters
        source, note = f"extrapolated from {rows[size]:,} of {table['model']} at {at},", table.get("note", "")
        if theirs == model.shape:
            told = f"{rows[size]:,}, measured at {at}"
        elif times >= 1:
            told = f"{rows[size]:,}, {source} and taken to be no faster"
        else:
            told = f"about {rows[size] * times:,.0f}, {source} by 6 x parameters x tokens"
            note = table.get("larger", note)
        lines.append(f"{role}: {told} {where}. {note}".rstrip())
    return lines


def _unmeasured(model: Model, choice: Choice, role: str) -> str:
    """Return why no table applies; "" where one does."""
    if not choice.config.placement.pool:
        return "only GPUs were measured"
    if model.has_experts:
        return "no model with experts was measured"
    if role == "learner" and int(choice.option["ranks"]) > 1:
        return "one rank was measured, and none of several GPUs"
    return "vLLM was not measured" if role == "sampler" and choice.config.sampler else ""
