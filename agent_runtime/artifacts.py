"""Files that environments attach to observations and grades: recorded by digest, their bytes kept in a folder.

`Keeping` wraps where environments come from: whatever an environment attaches is read from the server at once, since the
server forgets it with the episode, and written to a file named by its digest. That never fails a rollout.
"""

from __future__ import annotations

import logging
import re
from asyncio import to_thread
from collections.abc import Sequence
from pathlib import Path
from typing import TypeVar

from agent_runtime.agents.cli_rollout import BoxedEnv, BoxedRock
from agent_runtime.store import FOLDER
from agent_runtime.wrapped import WrappedBoxedEnv
from rock_env.env import Artifact, Info, StepResult, Verdict
from rock_env.errors import RockError
from rock_env.store.whole_file import write_whole

__all__ = ["Keeping", "artifact_path", "folder_in"]

logger = logging.getLogger(__name__)

_DIGEST = re.compile(r"[0-9a-f]{64}")
T = TypeVar("T")


def artifact_path(folder: Path, sha256: str) -> Path:
    """Return where a folder of artifacts has the file of a digest. Raise `ValueError` for a text that is none."""
    if not _DIGEST.fullmatch(sha256):
        raise ValueError(f"no SHA-256 in hexadecimal: {sha256[:80]!r}")
    return folder / sha256


def folder_in(run_folder: Path | str) -> Path:
    """Return where a run, or what was played with `--out`, keeps artifacts: beside its trajectory files."""
    return Path(run_folder) / FOLDER / "artifacts"


class Keeping:
    """Makes environments whose artifacts are kept in a folder. Satisfies `run.Rock`."""

    def __init__(self, rock: BoxedRock, folder: Path) -> None:
        self._rock, self._folder = rock, folder

    async def make(self, env: str, params_json: str) -> BoxedEnv:
        """Make an environment."""
        return _KeepingEnv(await self._rock.make(env, params_json), self._folder)


class _KeepingEnv(WrappedBoxedEnv[BoxedEnv]):
    def __init__(self, env: BoxedEnv, folder: Path) -> None:
        super().__init__(env)
        self._folder = folder

    async def reset(
        self,
        task_id: str,
        seed: int,
        prefix: Sequence[tuple[str, bytes]] = (),
        resume_seed: int | None = None,
        initial_hash: bytes = b"",
    ) -> tuple[str, Info, str]:
        return await self._kept(await super().reset(task_id, seed, prefix, resume_seed, initial_hash))

    async def step(self, action: str) -> StepResult:
        return await self._kept(await super().step(action))

    async def evaluate(self) -> Verdict:
        return await self._kept(await super().evaluate())

    async def _kept(self, reply: T) -> T:
        for artifact in self.artifacts:
            await self._keep(artifact)
        return reply

    async def _keep(self, artifact: Artifact) -> None:
        try:
            path = artifact_path(self._folder, artifact.sha256)
            if not path.exists():
                content = await self.read_artifact(artifact.sha256)
                await to_thread(_write, path, content)
        except (RockError, OSError, ValueError) as error:
            logger.warning("artifact not kept: name=%r sha256=%s %s", artifact.name, artifact.sha256, error)


def _write(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)

    def write(beside: Path) -> None:
        beside.write_bytes(content)

    write_whole(path, write)
