"""What the coder can say of the bugs of `swe`: the action space's share of what it learns.

A repair that cannot be said, or is longer than the recipe lets an answer be, is never sampled, whatever is learned.
"""

from __future__ import annotations

from collections import defaultdict
from functools import cache

import numpy as np
import pytest

from agent_runtime.policy import Message
from agent_runtime.types import IntArray
from ale import config as configuration
from sandboxes.swe import factory
from trainer.models.coder.template import CoderChatTemplate
from trainer.models.coder.words import EDIT, RANGE, CoderWords

WORDS = CoderWords.built_in()
TEMPLATE = CoderChatTemplate(WORDS, 6144)
EACH = 12
POINTED = ("off_by_one", "wrong_operator", "wrong_variable", "missing_return", "wrong_default")
SPELLED = "missing_edge_case"


def repair(key: str, family_file: str) -> IntArray:
    """Return the answer that says the repair of a task, after the tests failed and the right file was viewed."""
    task = factory.load(key)
    listing = "\n".join(path for path, _ in task.repo)
    first = f"You are in the project folder /workspace/{task.name}. Its files:\n{listing}\n\nThe bug report:\n{task.report}"
    source = dict(task.repo)[family_file].decode().rstrip("\n")
    count = source.count("\n") + 1
    ids = TEMPLATE.open([Message("user", first)])
    for action, reply in (
        ("run_tests", "[exit code 1]\nF\n1 failed"),
        (f"view {family_file}", f"{family_file} (lines 1-{count} of {count})\n{source}"),
    ):
        answer = TEMPLATE.encode_completion(action, ids)
        ids = np.concatenate((ids, answer, TEMPLATE.extend([Message("user", reply)], closed=True)))
    fix = [action for action in task.solution if action.startswith("edit ")][-1]
    return TEMPLATE.encode_completion(fix, ids)


@cache
def repairs() -> dict[str, list[IntArray]]:
    """Return the repairs of the first training tasks of each family."""
    found: dict[str, list[IntArray]] = defaultdict(list)
    for planted in factory.read_index().tasks:
        if planted.split == "train" and len(found[planted.family]) < EACH:
            found[planted.family].append(repair(planted.key, planted.file))
    return found


def spelled(answer: IntArray) -> int:
    """Return how many tokens of the new words are spelled, of an answer that is an edit."""
    return int((answer[4 if answer[2] == RANGE else 3 :] < WORDS.size).sum())


def test_every_repair_is_an_edit_that_points():
    """None falls back to an exact-match edit in words, of which a policy from scratch says none."""
    assert set(repairs()) == {*POINTED, SPELLED}
    assert all(answer[0] == EDIT for answers in repairs().values() for answer in answers)


@pytest.mark.parametrize("family", POINTED)
def test_the_repairs_of_five_families_are_a_few_choices(family):
    lengths = [len(answer) for answer in repairs()[family]]
    assert np.median(lengths) <= 8
    assert max(lengths) <= longest_answer()


def test_a_missing_case_must_be_spelled():
    """Why that family is never repaired. Where this fails, it can be said in fewer choices: measure swe anew."""
    counts = [spelled(answer) for answer in repairs()[SPELLED]]
    assert np.median(counts) >= 6
    others = [spelled(answer) for family in POINTED for answer in repairs()[family]]
    assert np.median(others) <= 3


def longest_answer() -> int:
    options = {"env": "swe", "algo": "ipa"}
    return configuration.resolve(file=None, options=options, overrides=[]).config.sampling.max_tokens
