"""The two engines of a run: the one that learns and the one that samples, found by name among the installed ones.

One engine is both unless the settings name a sampler. It builds nothing: the actors do, each its own side.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rock_env.errors import UnknownName, nearest
from rock_env.plugins import load, names
from trainer.config import PRETRAINED, TrainConfig, engine_of
from trainer.errors import ConfigError
from trainer.files import digests
from trainer.models.named import check_fetched, named_models
from trainer.protocols.engines import EngineSpec, SamplerSpec
from trainer.protocols.memory import STORE, Part, Role

__all__ = [
    "asks_singly",
    "check_files",
    "check_model",
    "learner_of",
    "learner_spec",
    "memory_of",
    "sampler_of",
    "sampler_spec",
]


def learner_spec(name: str) -> EngineSpec:
    """Return the engine of this name that trains. Raise `UnknownName`, or `ConfigError` for a plugin that does not."""
    spec = load("ale.engines", name)
    if isinstance(spec, SamplerSpec):
        raise ConfigError(
            f"the engine {name!r} samples and trains nothing. Name it with sampler={name!r}, beside a model or learner that "
            "trains."
        )
    if not isinstance(spec, EngineSpec):
        raise _no_spec(name, spec)
    return spec


def sampler_spec(name: str) -> SamplerSpec:
    """Return the sampling side of the engine of this name. Raise `UnknownName`, or `ConfigError` where there is none."""
    spec = load("ale.engines", name)
    if not isinstance(spec, EngineSpec | SamplerSpec):
        raise _no_spec(name, spec)
    sampler = spec.sampler if isinstance(spec, EngineSpec) else spec
    if sampler is None:
        raise ConfigError(
            f"the engine {name!r} trains and cannot sample. Name one that samples with sampler=NAME."
        )
    return sampler


def learner_of(config: TrainConfig) -> tuple[EngineSpec, Any]:
    """Return the engine that trains, and its options."""
    spec = learner_spec(config.engine)
    return spec, spec.options.model_validate(config.engine_options)


def sampler_of(config: TrainConfig) -> tuple[SamplerSpec, Any]:
    """Return what samples, and its options: the learner's own where no other is named.

    Raise `ConfigError` for a sampler that does not fit the learner.
    """
    if not config.sampler:
        spec = sampler_spec(config.engine)
        return spec, spec.options.model_validate(config.engine_options)
    spec = sampler_spec(config.sampler)
    options = spec.options.model_validate(config.sampler_options)
    if spec.learners and config.engine not in spec.learners:
        raise ConfigError(
            f"the sampler {spec.name!r} cannot sample from what the engine {config.engine!r} trains: got the model "
            f"{config.model!r}, expected one of {' or '.join(spec.learners)}. Choose another sampler, or another model."
        )
    ours, theirs = (getattr(one, "max_context", None) for one in (options, learner_of(config)[1]))
    takes_options = config.engine in (config.model, PRETRAINED)  # an exported model brings its own context
    if takes_options and ours is not None and theirs is not None and ours < theirs:
        raise ConfigError(
            f"the sampler {spec.name!r} takes contexts of {ours} tokens, the engine {config.engine!r} trains on {theirs}. "
            f"Set sampler_options.max_context={theirs}, or a lower engine_options.max_context."
        )
    return spec, options


def memory_of(config: TrainConfig, part: Part | None = None) -> list[Role]:
    """Return what the run's processes take in memory, by role; nothing of an engine that works nothing out.

    `part`: the largest pass that the learner had. Raise `InvalidArgument` where the model is not here.
    """
    (learner, options), (sampler, chosen) = learner_of(config), sampler_of(config)
    learns = learner.memory(config.model, options, config, part) if learner.memory else []
    samples = sampler.memory(config.model, chosen, config) if sampler.memory else []
    return [
        *(role for role in learns if role.name != STORE),
        *samples,
        *(role for role in learns if role.name == STORE),
    ]


def asks_singly(config: TrainConfig) -> bool:
    """Return whether rollout workers ask for one answer each, so that none waits for another's."""
    return config.rollout.batching == "eager" and sampler_of(config)[0].steps


def check_model(model: str, *, also: Sequence[str] | None = None) -> None:
    """Raise `UnknownName` for what is no engine, no name, no folder and no OWNER/NAME, so that no hub is asked for it, and
    `ConfigError` for a name that was not fetched.

    `also` are the names of runs, where one might be meant.
    """
    if engine_of(model) != PRETRAINED:
        return
    if model in named_models() and not Path(model).is_dir():  # the settings will hold its folder
        check_fetched(model)
        return
    owner, _, name = model.partition("/")
    on_a_hub = owner and name and "/" not in name and not owner.startswith(".") and not Path(owner).exists()
    if not on_a_hub and not Path(model).is_dir():
        known = [engine for engine in (*names("ale.engines"), *named_models()) if engine != PRETRAINED]
        error = nearest("model" if also is None else "run or model", model, [*(also or ()), *known])
        raise UnknownName(f"{error}. A model of Hugging Face is named OWNER/NAME.")
    if Path(model).is_dir() and not (Path(model) / "config.json").is_file():
        inside = [str(each) for each in (Path(model) / "model",) if (each / "config.json").is_file()]
        raise UnknownName(
            f"the folder {model!r} holds no model: got no config.json in it, expected one beside tokenizer and weights. "
            f"Name {inside[0] if inside else 'the folder model/ of a run, or one that a hub made'}."
        )


def check_files(model: str) -> None:
    """Check a model's files by the digests that the run which exported it left there, if it is here and has any.

    Raise `CheckpointError` naming the files that differ.
    """
    if Path(model).is_dir():
        digests.check(Path(model), exact=False)


def _no_spec(name: str, spec: object) -> ConfigError:
    return ConfigError(
        f"the engine plugin {name!r} is not an EngineSpec: got {type(spec).__name__}. Its entry point must name an object "
        "of type trainer.protocols.engines.EngineSpec, or SamplerSpec where it only samples."
    )
