"""A word game as a class: nothing but `reset` and `step`. Train in it with `ale train --env words:WordGame`.

What a class need not have, and may: `expert`, by which a model that begins with nothing learns what answers look like;
`actions`, by which chance plays; `instruction`, where the docstring is not for the agent.
"""

import random

WORDS = """
apple bread chair cloud dance dream eagle field flame fruit glass grape green heart honey horse house juice
knife lemon light mango metal money mouse music night ocean onion paint paper peach piano plant queen quiet
river robot salad scarf
""".split()  # noqa: SIM905 -- a list of words is easier to read and to change so


class WordGame:
    """A word has lost some letters. Say one letter: it is put wherever it is missing. The third wrong one ends the game."""

    actions = "abcdefghijklmnopqrstuvwxyz"

    def __init__(self, hidden: int = 2, misses: int = 3):
        self.hidden = hidden
        self.misses = misses

    def reset(self, seed=None):
        chance = random.Random(seed)
        self.word = chance.choice(WORDS)
        self.shown = list(self.word)
        for place in chance.sample(range(len(self.word)), self.hidden):
            self.shown[place] = "_"
        self.wrong = ""
        return self._text(), {}

    def step(self, action):
        letter = action.strip().lower()
        missing = {true for true, seen in zip(self.word, self.shown, strict=True) if seen == "_"}
        if letter in missing:
            self.shown = [
                letter if true == letter else seen for true, seen in zip(self.word, self.shown, strict=True)
            ]
        else:
            self.wrong += letter if len(letter) == 1 else "?"
        solved = "_" not in self.shown
        lost = len(self.wrong) >= self.misses
        return self._text(), float(solved), solved or lost, False, {}

    def expert(self, observation):
        return next(true for true, seen in zip(self.word, self.shown, strict=True) if seen == "_")

    def _text(self):
        return "".join(self.shown) + (f" not {self.wrong}" if self.wrong else "")
