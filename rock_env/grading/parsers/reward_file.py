"""Harbor's reward files: `reward.json` (an object of finite numbers) before `reward.txt` (one number).

A verifier that left none, or none that can be read, gave no grade: that is an error and never a 0.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping

from rock_env.grading.outcomes import Unreadable

__all__ = ["REWARD_FILES", "parse_reward"]

REWARD_FILES = ("reward.json", "reward.txt")

_MAX_BYTES = 64 << 10


def parse_reward(files: Mapping[str, bytes]) -> float:
    """Return the reward of the files in the verifier's log folder, by name. Raise `Unreadable`.

    In `reward.json` it is the number called `reward`, or the only one there is.
    """
    if "reward.json" in files:
        return _finite(_of_json(_text("reward.json", files["reward.json"])), "reward.json")
    if "reward.txt" in files:
        text = _text("reward.txt", files["reward.txt"])
        try:
            reward = float(text)
        except ValueError:
            raise Unreadable(f"reward.txt is not a number: {text[:60]!r}") from None
        return _finite(reward, "reward.txt")
    raise Unreadable("the verifier wrote neither reward.json nor reward.txt")


def _text(name: str, content: bytes) -> str:
    if len(content) > _MAX_BYTES:
        raise Unreadable(f"{name} is too large: {len(content)} bytes")
    text = content.decode(errors="replace").strip()
    if not text:
        raise Unreadable(f"{name} is empty")
    return text


def _of_json(text: str) -> float:
    try:
        rewards = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise Unreadable(f"reward.json is not JSON: {error}") from None
    numbers = isinstance(rewards, dict) and all(
        isinstance(value, int | float) and not isinstance(value, bool) for value in rewards.values()
    )
    if not numbers or not rewards:
        raise Unreadable(f"reward.json is not a flat object of numbers: {text[:60]!r}")
    for name, value in rewards.items():
        _finite(value, f"{name!r} of reward.json")
    if "reward" not in rewards and len(rewards) > 1:
        raise Unreadable(f"reward.json has several numbers and none called 'reward': {', '.join(rewards)}")
    return float(rewards.get("reward", next(iter(rewards.values()))))


def _finite(value: float, what: str) -> float:
    try:
        finite = math.isfinite(value)
    except OverflowError:  # an integer that no float can hold
        finite = False
    if not finite:
        raise Unreadable(f"{what} is not a finite number: {str(value)[:60]}")
    return value
