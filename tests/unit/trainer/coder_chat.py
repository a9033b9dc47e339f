"""A chat about one small file, as the coder sees it; shared by its tests."""

import numpy as np

from agent_runtime.policy import Message
from trainer.models.coder.template import CoderChatTemplate
from trainer.models.coder.words import CoderWords

WORDS = CoderWords.built_in()
TEMPLATE = CoderChatTemplate(WORDS, 2048)
PATH = "spans/cut.py"
SOURCE = '''\
"""Cut ranges."""


def clip(value, low, high=10):
    """Return value within low and high."""
    if value < low:
        return low
    total = low + value
    if value > high and total >= 0:
        return high
    return value


def width(low, high):
    return clip(high - low, 0, high)'''
FIRST = f"You are in the project folder /workspace/spans. Its files:\n{PATH}\ntests/test_cut.py\n\n`clip(11, 0)` is 11."
FAILED = f"[exit code 1]\nF\n{PATH}:9: in clip\nE   assert 11 == 10\n1 failed"


def shown(source: str = SOURCE) -> str:
    count = source.count("\n") + 1
    return f"{PATH} (lines 1-{count} of {count})\n{source}"


class Chat:
    """The tokens of a chat that goes on."""

    def __init__(self) -> None:
        self.ids = TEMPLATE.open([Message("user", FIRST)])

    def say(self, action: str, reply: str) -> "Chat":
        answer = TEMPLATE.encode_completion(action, self.ids)
        following = TEMPLATE.extend([Message("user", reply)], closed=True)
        self.ids = np.concatenate((self.ids, answer, following))
        return self


def viewed(source: str = SOURCE) -> Chat:
    return Chat().say("run_tests", FAILED).say(f"view {PATH}", shown(source))


def edit(old: str, new: str) -> str:
    return f"edit {PATH}\n<<<<<<<\n{old}\n=======\n{new}\n>>>>>>>"
