"""An environment of your own in one file: guess a number between 1 and 100, told higher or lower.

Installed through the entry point in `pyproject.toml`, it is an environment like any other: `ale env play guess_number`,
`ale train --env guess_number`. An `Env` is plain synchronous Python; the service gives it processes, sockets, exactly-once
steps, batches, checkpoints and forks.
"""

import json
import random

from rock_env.env import Env, Info, Oracle, StepResult, Verdict
from rock_env.errors import FailedPrecondition
from rock_env.spec import EnvParams, EnvSpec, TaskSource, TaskSpec
from rock_env.tasks import ProceduralTasks

INSTRUCTION = "Guess a whole number between 1 and {highest}. Answer with the number only."


class GuessParams(EnvParams):
    highest: int = 100
    """The largest number that may have to be guessed."""
    max_turns: int = 10
    """Guesses one episode allows."""


class GuessNumber:
    """The state is the secret number (from the task), the last guess and the turn: no randomness of its own."""

    def __init__(self, params: GuessParams) -> None:
        self._params = params
        self._state: dict[str, int] | None = None

    def reset(self, task: TaskSpec, seed: int) -> tuple[str, Info]:
        self._state = {"secret": int(task.payload), "guess": 0, "turn": 0}
        return self._observation(), {}

    def step(self, action: str) -> StepResult:
        state = self._running()
        state["turn"] += 1
        said = action.strip()
        # Python refuses to read a number of thousands of digits: that is the agent's doing, and no failure of the task.
        legal = said.isascii() and said.isdigit() and len(said) <= len(str(self._params.highest))
        if legal:
            state["guess"] = int(said)
        found = state["guess"] == state["secret"]
        return StepResult(
            self._observation(),
            terminated=found,
            truncated=not found and state["turn"] >= self._params.max_turns,
            info={} if legal else {"illegal": True},
        )

    def evaluate(self) -> Verdict:
        state = self._running()
        found = state["guess"] == state["secret"]
        return Verdict(float(found), found)

    def snapshot(self) -> bytes:
        return json.dumps(self._running()).encode()

    def restore(self, state: bytes) -> str:
        self._state = json.loads(state)
        return self._observation()

    def reseed(self, seed: int) -> None:
        """Nothing here is random."""

    def close(self) -> None:
        self._state = None

    def _running(self) -> dict[str, int]:
        if self._state is None:
            raise FailedPrecondition("guess_number has no episode: call reset or restore first.")
        return self._state

    def _observation(self) -> str:
        state = self._running()
        if not state["guess"]:
            return f"A number between 1 and {self._params.highest}."
        difference = state["secret"] - state["guess"]
        return f"{state['guess']} is right." if not difference else "Higher." if difference > 0 else "Lower."


class Bisection:
    """The oracle: halves the range each time, so it needs at most log2(highest) + 1 guesses."""

    def __init__(self, highest: int) -> None:
        self._low, self._high, self._guess = 1, highest, 0

    def __call__(self, observation: str) -> str:
        if observation == "Higher.":
            self._low = self._guess + 1
        elif observation == "Lower.":
            self._high = self._guess - 1
        self._guess = (self._low + self._high) // 2
        return str(self._guess)


def make(params: EnvParams) -> Env:
    assert isinstance(params, GuessParams)
    return GuessNumber(params)


def tasks(params: EnvParams) -> TaskSource:
    assert isinstance(params, GuessParams)
    highest = params.highest
    return ProceduralTasks(
        lambda seed: str(random.Random(seed).randint(1, highest)),
        salt="guess_number",
        instruction=INSTRUCTION.format(highest=highest),
    )


def oracle(params: EnvParams, task: TaskSpec) -> Oracle:
    assert isinstance(params, GuessParams)
    return Bisection(params.highest)


def optimum(params: EnvParams, task: TaskSpec) -> float:
    """Bisection finds any number if it has enough turns."""
    assert isinstance(params, GuessParams)
    return 1.0 if 2**params.max_turns > params.highest else 0.0


ENV = EnvSpec(
    name="guess_number",
    version="1",
    summary="Guess a number, told higher or lower.",
    params=GuessParams,
    factory=make,
    tasks=tasks,
    oracle=oracle,
    optimum=optimum,
    snapshots=True,
)
