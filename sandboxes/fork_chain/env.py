"""The fork chain as a text environment. Made by the env host through `ENV.factory`; one episode at a time."""

from __future__ import annotations

import json
import re

from rock_env.env import Env, Info, StepResult, Verdict
from rock_env.errors import FailedPrecondition, InvalidArgument
from rock_env.spec import EnvParams, TaskSpec
from sandboxes.fork_chain.chain import Chain, Fork, chain
from sandboxes.fork_chain.params import ForkChainParams, narrow

__all__ = ["DEAD_END", "HOME", "ForkChain", "make"]

HOME, DEAD_END = "home", "dead end"
_WORD = re.compile(r"[a-z]+")


class ForkChain:
    """The agent passes fork after fork, astray or not. Implements `rock_env.env.Env`."""

    def __init__(self, params: ForkChainParams) -> None:
        self._clues = params.clues
        self._max_turns = params.turn_limit
        self._map = ""
        self._chain: Chain | None = None
        self._passed = 0
        self._turn = 0
        self._astray = 0
        """The number, from 1, of the first fork that was left by a wrong path; 0 while there is none."""

    def reset(self, task: TaskSpec, seed: int) -> tuple[str, Info]:
        """Stand at the first fork; `seed` changes nothing. Raise `InvalidArgument` if the payload is no map."""
        self._place(task.payload)
        return self._shown(self._here()), {}

    def step(self, action: str) -> StepResult:
        """Take a path; after the end nothing changes any more and the reward is 0."""
        here = self._here()
        if self._ended(here):
            return self._result(here)
        self._turn += 1
        fork = here.forks[self._passed]
        path = _path_of(action, fork)
        if path is None:
            return self._result(here, info={"illegal": True})
        if path != fork.right:
            self._astray = self._astray or self._passed + 1
        self._passed += 1
        return self._result(here, reward=1.0 if self._is_home(here) else 0.0)

    def evaluate(self) -> Verdict:
        """Grade the position: 1.0 at home, else 0.0."""
        here = self._here()
        home = self._is_home(here)
        way = f"astray since fork {self._astray}" if self._astray else "on the right way"
        details = f"{self._passed} of {len(here.forks)} forks passed in {self._turn} turns, {way}"
        return Verdict(1.0 if home else 0.0, home, details)

    def snapshot(self) -> bytes:
        """Return the map and the position as JSON."""
        self._here()
        state = {"fork_chain": self._map, "passed": self._passed, "turn": self._turn, "astray": self._astray}
        return json.dumps(state).encode()

    def restore(self, state: bytes) -> str:
        """Continue from a snapshot taken under the same arguments. Raise `InvalidArgument` if it is none."""
        try:
            values = json.loads(state)
            text = str(values["fork_chain"])
            passed, turn, astray = int(values["passed"]), int(values["turn"]), int(values["astray"])
        except (ValueError, KeyError, TypeError) as error:
            raise InvalidArgument(
                f"not a fork_chain snapshot: got {state[:40]!r}. Pass the bytes that snapshot() returned."
            ) from error
        self._place(text)
        if not 0 <= astray <= passed <= min(turn, len(self._here().forks)):
            raise InvalidArgument(
                f"a fork_chain snapshot is corrupt: {passed} forks passed in {turn} turns, astray since fork {astray}."
            )
        self._passed, self._turn, self._astray = passed, turn, astray
        return self._shown(self._here())

    def reseed(self, seed: int) -> None:
        """Do nothing: there is no chance here."""

    def close(self) -> None:
        """Forget the episode."""
        self._chain = None

    def _place(self, text: str) -> None:
        self._chain, self._map = chain(text), text
        self._passed = self._turn = self._astray = 0

    def _here(self) -> Chain:
        if self._chain is None:
            raise FailedPrecondition("fork_chain has no episode: call reset or restore first.")
        return self._chain

    def _is_home(self, here: Chain) -> bool:
        return self._passed == len(here.forks) and not self._astray

    def _ended(self, here: Chain) -> bool:
        return self._passed == len(here.forks) or self._turn >= self._max_turns

    def _shown(self, here: Chain) -> str:
        if self._passed < len(here.forks):
            return here.shown(self._passed, clues=self._clues)
        return DEAD_END if self._astray else HOME

    def _result(self, here: Chain, *, reward: float = 0.0, info: Info | None = None) -> StepResult:
        terminated = self._passed == len(here.forks)
        truncated = not terminated and self._ended(here)
        return StepResult(self._shown(here), reward, terminated, truncated, info or {})


def _path_of(action: str, fork: Fork) -> str | None:
    """Return the last word of `action` that is one of the fork's paths."""
    words = [word for word in _WORD.findall(action.lower()) if word in fork.paths]
    return words[-1] if words else None


def make(params: EnvParams) -> Env:
    """Build one environment."""
    return ForkChain(narrow(params))
