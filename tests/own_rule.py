"""A rule of one's own, for runs whose model is too small to be rewarded by its environment."""

from __future__ import annotations

from pathlib import Path

__all__ = ["UNLIKE", "write_rule"]

UNLIKE = [{"worker": "rule", "options": {"check": "told_apart:unlike"}}]
"""`reward.routes` of a run that finds the rule on its path."""
_RULE = '''
from trainer.reward.base import Answer

def unlike(sample):
    """Tell answers apart by their tokens."""
    said = sum(int(turn.completion_ids.sum()) for turn in sample.trajectory.turns)
    return Answer(reward=said % 1009 / 1008)
'''


def write_rule(folder: Path) -> None:
    """Put the rule's module into a folder of the path."""
    (folder / "told_apart.py").write_text(_RULE)
