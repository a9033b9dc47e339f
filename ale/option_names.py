"""The names of all run options: what they are, what they mean, which one an unknown name was meant to be.

Reads `TrainConfig`'s fields only; holds no values.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import BaseModel

from rock_env.errors import did_you_mean
from trainer.config import TrainConfig
from trainer.errors import ConfigError

__all__ = ["OPTION_TABLES", "check_names", "comments", "flat", "meant", "option_names"]

OPTION_TABLES = {
    "env": "env_args",
    "algo": "algo_options",
    "model": "engine_options",
    "sampler": "sampler_options",
}
"""Options that a plugin declares, by the option that chooses the plugin."""
_ELSEWHERE = {
    "env": "environment env_name env_id",
    "env_args": "env_kwargs env_config",
    "algo": "algorithm",
    "model": "model_name model_path model_name_or_path pretrained_model",
    "seed": "random_seed",
    "steps": "num_steps total_steps training_steps max_steps num_iterations",
    "agent.max_turns": "max_episode_steps horizon max_env_steps",
    "agent.window_turns": "history history_length window num_history_turns",
    "agent.system": "system_prompt",
    "sampling.temperature": "temperature temp",
    "sampling.max_tokens": "max_new_tokens response_length max_response_length max_completion_length",
    "rollout.groups_per_step": "batch_size train_batch_size rollout_batch_size prompts_per_step num_prompts",
    "rollout.group_size": "num_generations n_samples num_samples samples_per_prompt rollouts_per_group n_rollouts",
    "rollout.workers": "num_workers",
    "rollout.concurrency": "num_envs n_envs max_concurrency",
    "rollout.staleness": "max_staleness off_policy_steps async_level",
    "rollout.time_limit_s": "timeout timeout_s time_limit",
    "placement.pool": "gpus num_gpus n_gpus cpus num_cpus",
    "optim.lr": "learning_rate actor_lr policy_lr",
    "optim.beta1": "adam_beta1",
    "optim.beta2": "adam_beta2",
    "optim.grad_clip": "max_grad_norm gradient_clipping clip_grad",
    "optim.minibatches": "num_minibatches minibatch_size mini_batch_size ppo_epochs update_epochs",
    "optim.microbatch_tokens": "micro_batch_size microbatch_size",
    "optim.threads": "num_threads",
    "explore.kl_coef": "beta kl_beta kl_loss_coef init_kl_coef kl_penalty",
    "explore.entropy_coef": "ent_coef entropy_coeff entropy_bonus",
    "warmup.epochs": "warmup_epochs sft_epochs",
    "eval.every": "eval_every eval_interval eval_steps eval_freq test_freq",
    "checkpoint.every": "save_every save_interval save_steps save_freq",
    "checkpoint.keep": "save_total_limit keep_last max_checkpoints",
}
"""What other programs of the field call an option, one word a name."""


def option_names(model: type[BaseModel] = TrainConfig, prefix: str = "") -> Iterator[str]:
    """Yield the dotted name of every option, in declaration order."""
    for name in model.model_fields:
        section = _section(model, name)
        if section is None:
            yield prefix + name
        else:
            yield from option_names(section, f"{prefix}{name}.")


def comments(model: type[BaseModel] = TrainConfig, prefix: str = "") -> dict[str, str]:
    """Return the documentation of each option and section, by dotted name."""
    found: dict[str, str] = {}
    for name, field in model.model_fields.items():
        section = _section(model, name)
        if section is not None:
            found[prefix + name] = (section.__doc__ or "").partition("\n")[0]
            found |= comments(section, f"{prefix}{name}.")
        elif field.description:
            found[prefix + name] = " ".join(field.description.split())
    return found


def check_names(values: Mapping[str, Any], source: str) -> None:
    """Refuse unknown names, and a value where a section belongs or the reverse. Raise `ConfigError`."""

    def walk(values: Mapping[str, Any], model: type[BaseModel], prefix: str) -> None:
        for key, value in values.items():
            name = prefix + key
            if key not in model.model_fields:
                raise _unknown(next(iter(flat({name: value})), name), prefix, model, source)
            section = _section(model, key)
            if section is not None and not isinstance(value, Mapping):
                inside = ", ".join(option_names(section, f"{name}."))
                raise ConfigError(f"{name!r} in {source} is a section, got {value!r}; set one of {inside}")
            if section is not None:
                walk(value, section, f"{name}.")
            elif isinstance(value, Mapping) and name not in OPTION_TABLES.values():
                raise ConfigError(f"{name!r} in {source} is one option, not a section; got {value!r}")

    walk(values, TrainConfig, "")


def flat(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return nested values by dotted name."""
    found: dict[str, Any] = {}
    for key, value in values.items():
        found |= flat(value, f"{prefix}{key}.") if isinstance(value, Mapping) else {prefix + key: value}
    return found


def _section(model: type[BaseModel], name: str) -> type[BaseModel] | None:
    annotation = model.model_fields[name].annotation
    return annotation if isinstance(annotation, type) and issubclass(annotation, BaseModel) else None


def meant(name: str, section: str = "") -> str:
    """Return the option that an unknown name stands for, by what it means rather than by its letters; "" for none.

    `section` is the known beginning of the name, with its dot.
    """
    leaf = name.rpartition(".")[2]
    same_leaf = [option for option in option_names() if option.rpartition(".")[2] == leaf]
    # Of several options with this last word the nearest is meant, however far it is from what was typed.
    near = _known_elsewhere(name) or difflib.get_close_matches(name, same_leaf, n=1, cutoff=0.0)
    return next(iter(near or _by_meaning(leaf, section)), "")


def _unknown(name: str, prefix: str, model: type[BaseModel], source: str) -> ConfigError:
    near = meant(name, prefix)
    # The section is right where it is known, so that letters of it make nothing near.
    known = [option.removeprefix(prefix) for option in option_names() if option.startswith(prefix)]
    by_letters = did_you_mean(name.removeprefix(prefix), known).replace("'", f"'{prefix}", 1)
    hint = f" Did you mean {near!r}?" if near else by_letters
    here = ", ".join(prefix + field for field in model.model_fields)
    return ConfigError(f"unknown option {name!r} in {source}.{hint} Known here: {here}")


def _known_elsewhere(name: str) -> list[str]:
    """Return the option that other programs call so; a section that is written before it need not be the option's."""
    section, _, leaf = name.replace("-", "_").lower().rpartition(".")
    if section and section not in TrainConfig.model_fields:
        return []
    return [option for option, names in _ELSEWHERE.items() if leaf in names.split()]


def _by_meaning(leaf: str, section: str) -> list[str]:
    """Return the options of a section whose descriptions hold all words of a name (`learning_rate`), the briefest first."""
    words = set(leaf.split("_"))
    if len(words) < 2:
        return []
    said = {
        name: re.findall(r"[a-z]+", text.lower())
        for name, text in comments().items()
        if name.startswith(section) and "." not in name[len(section) :]
    }
    return sorted((name for name in said if words <= set(said[name])), key=lambda name: len(said[name]))
