"""Run folders: how they are named, found, opened for a new run or continued.

A run folder holds `config.toml, summary.json, metrics.jsonl, success.png, lineage.json, events/, trajectories/,
checkpoints/, model/, rewards/`; this module writes `config.toml` only, the loop and the plots write the rest.
"""

from __future__ import annotations

import json
import os
import shutil
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from agent_runtime.store import kept_segment
from ale import config as configuration
from ale.option_names import flat
from ale.own_class import bring
from rock_env import plugins
from rock_env.errors import did_you_mean, listed
from rock_env.foreign import budget
from rock_env.store.whole_file import write_whole
from trainer import checkpoint
from trainer.config import TrainConfig
from trainer.errors import ConfigError, RunFolderError
from trainer.files.folder import LOCK, claimed, writing
from trainer.lineage import CONFIG, MODEL

__all__ = [
    "CONFIG",
    "OWN",
    "bring_own",
    "check_free",
    "check_own",
    "check_settings",
    "continue_run",
    "default_name",
    "folder_name",
    "inherited",
    "keep_config",
    "known",
    "locate",
    "open_new",
    "others",
    "recorded_config",
    "trained_model",
    "withdraw",
]

OWN = "own.json"
"""Names what a script gave to the run, so that nobody else continues it without."""
HOME = Path("runs")
_OPENED = ("events", "journal.jsonl", "lineage.json", "metrics.jsonl", "observed.id", "timeline.jsonl")
"""What a run opens before it plays."""
_CHOSEN = "engine_options.checkpointing"
"""What a run chooses as it begins, where its user did not (`trainer.models.fitting`)."""
_ELSEWHERE = (
    "rollout.workers",
    "rollout.engines",
    "rollout.concurrency",
    "rollout.rock_address",
    "rollout.outage_s",
    "engine_options.ranks",
    "optim.microbatch_tokens",
    "guard.late_s",
)
_ELSEWHERE_ALL = ("placement.", "checkpoint.")
"""Settings, and sections of settings, that say where and in how large parts a run is computed, not what it learns: a resumed
run may have others."""


def default_name(config: TrainConfig) -> str:
    """Return `ENV-ALGO-seedN`."""
    return f"{folder_name(config.env)}-{config.algo}-seed{config.seed}"


def folder_name(env: str) -> str:
    """Return an environment's name as a folder's, of several `math-0.4+code-0.6`: `gym:phys2d/CartPole-v1` has signs that no
    folder should."""
    return env.replace(" ", "").replace(",", "+").replace(":", "-").replace("/", "-")


def locate(run: str) -> Path:
    """Return the folder of a run given by path or by name; a name is looked for in `runs/` first, then in this folder."""
    here = (
        os.sep in run or run in {".", ".."} or (not (HOME / run).exists() and (Path(run) / CONFIG).is_file())
    )
    return Path(run) if here else HOME / run


def known() -> list[str]:
    """Return the names of the runs in `runs/`."""
    return sorted(path.parent.name for path in HOME.glob(f"*/{CONFIG}"))


def others(name: str) -> str:
    """Return what a message about an unknown run ends with: the run whose name is near, and all there are."""
    runs = known()
    return f"{did_you_mean(name, runs)} Runs here: {listed(runs)}"


def open_new(folder: Path, config: TrainConfig) -> None:
    """Create the folder and write `config.toml`. Raise `RunFolderError` if it is in use or cannot be written."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        taken = any(folder.iterdir())
        if not taken:
            if given := _given():
                write_whole(folder / OWN, lambda beside: beside.write_bytes(json.dumps(given).encode()))
            _write_config(folder, config)
    except OSError as error:
        raise RunFolderError(
            f"cannot write the run folder {folder}: {error.strerror}. Name another place with --run."
        ) from error
    if taken:
        raise _taken(folder)


def _write_config(folder: Path, config: TrainConfig) -> None:
    content = configuration.render(config).encode()
    write_whole(folder / CONFIG, lambda beside: beside.write_bytes(content))


def check_free(folder: Path) -> None:
    """Raise `RunFolderError` where a new run's folder is in use: before anything is played that takes time."""
    if folder.is_dir() and any(folder.iterdir()):
        raise _taken(folder)


def _taken(folder: Path) -> RunFolderError:
    return RunFolderError(
        f"the run folder {folder} is not empty. Continue that run with --resume, "
        "or start another one with --run NAME."
    )


def withdraw(folder: Path, *, opened: bool = False) -> None:
    """Remove the folder of a run that never began, so that its name is free; `opened`: its processes had started."""
    if all(path.name in {CONFIG, LOCK, OWN, *(_OPENED if opened else ())} for path in folder.iterdir()):
        shutil.rmtree(folder, ignore_errors=True)


def recorded_config(folder: Path) -> TrainConfig:
    """Return the config a run was started with. Raise `RunFolderError` where there is no run."""
    if not (folder / CONFIG).is_file():
        raise RunFolderError(f"no run in {folder}: it holds no {CONFIG}.{others(folder.name)}")
    check_own(folder)
    check_settings(folder)
    return configuration.resolve(file=folder / CONFIG).config


def bring_own(folder: Path) -> dict[str, list[str]]:
    """Import the environments that a run names as `module:CLASS`, and return the names of all it was given, by kind.

    Raise `RunFolderError`, or `InvalidArgument` where a class is not there.
    """
    try:
        wanted: dict[str, list[str]] = json.loads(budget.read_json(folder / OWN, str(folder / OWN)))
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except (OSError, ValueError, RecursionError) as error:
        raise RunFolderError(f"cannot read {folder / OWN}: {error}. Restore it from a copy.") from error
    for name in wanted.get("env", []):
        bring(name)
    return wanted


def check_own(folder: Path) -> None:
    """Raise `RunFolderError` where a script gave the run objects of its own and this process has not got them."""
    wanted = bring_own(folder)
    here = _given()
    missing = [
        f"the {kind} {name!r}"
        for kind, names in wanted.items()
        for name in names
        if name not in here.get(kind, [])
    ]
    if missing:
        raise RunFolderError(
            f"the run in {folder} was begun by a Python script with {', '.join(missing)}, and only the script has "
            f"{'it' if len(missing) == 1 else 'them'}: the command line cannot resume or evaluate the run. Continue it "
            f"from the script with ale.train(..., run={str(folder)!r}, resume=True), or install them under these names "
            f"by entry point and remove {OWN}."
        )


def check_settings(folder: Path) -> None:
    """Raise `ConfigError` where a run's `config.toml` holds other values than its newest checkpoint says it was begun with.

    Nothing is known of a run without a checkpoint, or with those of earlier versions.
    """
    kept = checkpoint.kept_settings(folder / "checkpoints")
    if not kept:
        return
    path = folder / CONFIG
    try:
        was, now = (flat(values) for values in (tomllib.loads(kept), budget.read_settings(path)))
    except (OSError, ValueError, RecursionError) as error:
        raise ConfigError(f"cannot read {path}: {error}. Restore it from a copy.") from error
    for name in sorted(was.keys() | now.keys()):
        before, got = (repr(values[name]) if name in values else "no value" for values in (was, now))
        if before != got and not _is_elsewhere(name):
            raise ConfigError(
                f"{path} was changed since the run began: {name} has {got}, the run has {before}. Put that back, or start "
                f"another run with these settings: --config {path} --run NAME."
            )


def _given() -> dict[str, list[str]]:
    """Return the names of what this process was given, by kind."""
    found: dict[str, list[str]] = {}
    for group, name in sorted(plugins.own()):
        found.setdefault(group.removeprefix("ale.").removesuffix("s"), []).append(name)
    return found


def trained_model(folder: Path) -> Path:
    """Return the folder of a run's model. Raise `RunFolderError` for a run that has not exported one yet."""
    if not (folder / MODEL).is_dir():
        place = f"{folder}" if "/" in f"{folder}" else f"./{folder}"  # a bare name is one in runs/
        raise RunFolderError(
            f"the run in {folder} has no trained model yet: it ends with one. Finish it with "
            f"`ale train --resume --run {place}`."
        )
    return folder / MODEL


def inherited(folder: Path) -> dict[str, Any]:
    """Return the settings that a run begun from this one's model takes over: what the model saw, and its experts.

    Raise `RunFolderError` where there is no run, or an unfinished one.
    """
    before = recorded_config(folder)
    model = trained_model(folder)
    settings = before.model_dump()
    engines = ("learner", "engine_options", "sampler", "sampler_options")
    taken = ("env", "env_args", *engines, "seed", "train_split", "agent", "sampling")
    experts = kept_segment(folder, "expert")
    return {
        **{name: settings[name] for name in taken},
        "model": str(model),
        "eval": {name: settings["eval"][name] for name in ("split", "tasks", "temperature")},
        "warmup": {"data": [str(experts)] if experts.is_file() else [], "epochs": 0},
    }


def continue_run(folder: Path, config: TrainConfig) -> TrainConfig:
    """Return the settings a run goes on with: its own, but for where and in how large parts it is computed (`keep_config`).

    Raise `ConfigError` where others are wanted of the rest. What the run chose by itself when it began stays.
    """
    begun = recorded_config(folder)
    recorded, wanted = flat(begun.model_dump()), flat(config.model_dump())
    if wanted.get(_CHOSEN) == "auto":
        wanted[_CHOSEN] = recorded.get(_CHOSEN, "auto")
        options = {**config.engine_options, "checkpointing": wanted[_CHOSEN]}
        config = config.model_copy(update={"engine_options": options})
    for name in _differing(recorded, wanted):
        if not _is_elsewhere(name):
            raise ConfigError(
                f"the run in {folder} has {name} = {recorded.get(name)!r}, got {wanted.get(name)!r}. A resumed run "
                "keeps its settings: leave the option out, or start another run with --run NAME."
            )
    return config


def keep_config(folder: Path, config: TrainConfig) -> list[str]:
    """Write what `continue_run` gave to the run's `config.toml`; return what is another now, a sentence each.

    Raise `RunFolderError` where another process trains there.
    """
    before, now = (flat(each.model_dump()) for each in (recorded_config(folder), config))
    changed = _differing(before, now)
    if changed:
        with claimed(folder), writing("settings", folder):
            _write_config(folder, config)
    return [
        f"the run goes on with {name} = {now.get(name)!r}, it had {before.get(name)!r}" for name in changed
    ]


def _differing(one: Mapping[str, object], other: Mapping[str, object]) -> list[str]:
    return [name for name in sorted(one.keys() | other.keys()) if one.get(name) != other.get(name)]


def _is_elsewhere(name: str) -> bool:
    return name in _ELSEWHERE or name.startswith(_ELSEWHERE_ALL)
