"""What one hosted environment remembers so that an action happens exactly once, and only when it is legal.

Kept beside the environment, by the env host (`Env`) and by the service core (`SandboxEnv`). It decides and
remembers; it never calls the environment.
"""

from __future__ import annotations

import hashlib
from enum import Enum
from typing import Any, TypeVar

from rock_env.errors import FailedPrecondition, InvalidArgument, ResetDivergence, RockError, Unimplemented
from rock_env.proto.v1 import env_pb2 as pb
from rock_env.spec import EnvSpec

__all__ = [
    "MOST_KEY_CHARS",
    "Journal",
    "Phase",
    "check_goes_on",
    "check_key",
    "check_observation",
    "check_prefix",
]

MOST_KEY_CHARS = 1024
_FEW_BYTES = 128
"""A request of so many is kept as it is: a digest takes three times as long."""
_STEP = pb.StepRequest

Reply = TypeVar("Reply")


class Phase(Enum):
    """Where the episode stands."""

    NEW = "not reset yet"
    RUNNING = "running"
    DONE = "done"
    BROKEN = "broken"


def check_key(key: str) -> None:
    """Raise `InvalidArgument` for an idempotency key that is longer than one may be: it is kept."""
    if len(key) > MOST_KEY_CHARS:
        raise InvalidArgument(
            f"idempotency_key has {len(key)} characters, expected at most {MOST_KEY_CHARS}."
        )


def check_prefix(request: pb.ResetRequest, spec: EnvSpec) -> None:
    """Raise `Unimplemented` for turns that cannot be played again, `InvalidArgument` for a recovered turn behind them."""
    if request.prefix and not spec.replayable:
        raise Unimplemented(f"environment {spec.name} is not replayable: reset it without a prefix.")
    if request.recovered_turn > len(request.prefix):
        raise InvalidArgument(
            f"recovered_turn is a turn of the prefix, of 0 to {len(request.prefix)}, got {request.recovered_turn}."
        )


class Journal:
    """The last sequence with its key, request and reply, and the episode's phase.

    Only a success consumes its sequence: a refused or failed call leaves `sequence` alone, so the caller's next
    call uses the same number. A failure inside the environment leaves it `BROKEN` until the next Reset or Restore.
    """

    __slots__ = ("asked", "cause", "env_id", "key", "phase", "reply", "sequence")

    def __init__(self, env_id: str) -> None:
        self.env_id = env_id
        self.sequence = 0
        self.key = ""
        self.asked: str | bytes = b""
        self.reply: Any = None
        self.phase = Phase.NEW
        self.cause: RockError | None = None

    def replay(self, request: Any, kind: type[Reply]) -> Reply | None:
        """Return the stored reply of a retry, or None for the next call in order.

        Raise `FailedPrecondition` for a gap, or for the last sequence under another key or by another request, and
        `InvalidArgument` for a key that is too long.
        """
        sequence, key = request.sequence, request.idempotency_key
        if len(key) > MOST_KEY_CHARS:
            check_key(key)
        if sequence == self.sequence + 1:
            return None
        if sequence == self.sequence and sequence > 0:
            if key == self.key and isinstance(self.reply, kind):
                if _asked(request) != self.asked:
                    raise FailedPrecondition(
                        f"sequence {sequence} of environment {self.env_id} and its idempotency key were already used "
                        f"by another request. Take sequence {self.sequence + 1} and a key of its own for this one."
                    )
                return self.reply
            if key == self.key:
                raise FailedPrecondition(
                    f"sequence {sequence} of environment {self.env_id} was already used by another call, which answered "
                    f"with a {type(self.reply).__name__}: expected {self.sequence + 1}, and a key of its own."
                )
            raise FailedPrecondition(
                f"sequence {sequence} of environment {self.env_id} was already used under another idempotency key: "
                f"got {key!r}, expected {self.key!r}. Is a second client driving this environment?"
            )
        raise FailedPrecondition(
            f"sequence out of order on environment {self.env_id}: got {sequence}, expected {self.sequence + 1}. "
            "Calls on one environment must be made one after the other."
        )

    def commit(self, request: Any, reply: Any) -> None:
        """Remember the reply of a call that succeeded."""
        self.sequence = request.sequence
        self.key = request.idempotency_key
        self.asked = _asked(request)
        self.reply = reply

    def need_step(self) -> None:
        """Raise unless a step is legal now."""
        if self.phase is Phase.RUNNING:
            return
        if self.phase is Phase.DONE:
            raise FailedPrecondition(
                f"step after the end of the episode of environment {self.env_id}. Reset it first."
            )
        self.need_episode("step")

    def need_episode(self, call: str) -> None:
        """Raise unless an episode was started and its state is sound."""
        if self.phase is Phase.NEW:
            raise FailedPrecondition(f"{call} before reset of environment {self.env_id}. Reset it first.")
        if self.cause is not None:
            raise type(self.cause)(
                f"{self.cause.message} Environment {self.env_id} is unusable until it is reset."
            )

    def touch(self) -> None:
        """Record that the environment is being changed: unless `settle` follows, its state is unsound."""
        self.phase = Phase.BROKEN
        self.cause = None

    @property
    def unsound(self) -> bool:
        """Return whether a call left the environment in mid-change and nobody recorded why yet."""
        return self.phase is Phase.BROKEN and self.cause is None

    def broke(self, error: RockError) -> RockError:
        """Record that the environment failed in mid-action, and return `error`."""
        self.phase = Phase.BROKEN
        self.cause = error
        return error

    def settle(self, *, done: bool) -> None:
        """Record a sound state."""
        self.phase = Phase.DONE if done else Phase.RUNNING
        self.cause = None


def _asked(request: Any) -> str | bytes:
    """Return what stands for a request: a short action, the bytes where they are few, else their digest. It has no maps."""
    if type(request) is _STEP and len(action := request.action) <= _FEW_BYTES:
        return action
    data: bytes = request.SerializeToString()
    return data if len(data) <= _FEW_BYTES else hashlib.blake2b(data, digest_size=16).digest()


def check_goes_on(turn: int, *, done: bool, env_id: str) -> None:
    """Refuse a recorded turn after the end of the replayed episode. Raise `ResetDivergence`."""
    if done:
        raise ResetDivergence(
            f"replay of environment {env_id} diverged at turn {turn}: the episode had ended, the recording goes on."
        )


def check_observation(turn: int, *, recorded: bytes, actual: bytes, env_id: str) -> None:
    """Compare a replayed observation's hash with the recorded one; turn 0 is the reset. Raise `ResetDivergence`."""
    if recorded and recorded != actual:
        raise ResetDivergence(
            f"replay of environment {env_id} diverged at turn {turn}: got observation hash {actual.hex()}, "
            f"expected {recorded.hex()}. The environment or its version differs from the recorded one, or it is "
            "not deterministic."
        )
