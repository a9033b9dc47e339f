"""What a step's rollouts say by themselves: where they began, and what they sampled."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import count

import pytest
from algo_reference import CONTEXT, trajectory
from anchor_cases import played

from agent_runtime.types import PrefixTurn, RolloutFailure, Start, TurnLabel
from trainer.rollout.anchors import Anchor, Expert, Origin
from trainer.rollout.report import (
    effective_share,
    episode_metrics,
    fall,
    growth,
    sampled_tokens,
    start_metrics,
)


def begun(length: int, turn: int, name: str):
    """Return a rollout from turn `turn` of an expert of `length` turns, and its anchor."""
    turns = tuple(PrefixTurn("a", "o") for _ in range(length))
    expert = Expert("e", "train/0", 0, "", turns, Origin.ORACLE)
    one = trajectory(name, [2, 1], 1.0, ids=count(CONTEXT), group=name)
    return replace(one, start=Start(0, prefix=turns[:turn])), Anchor(expert, turn)


def test_starts_are_counted_by_the_quarter_of_their_expert():
    places = [(4, 0), (4, 1), (4, 2), (4, 3), (8, 5), (8, 6), (8, 7), (3, 1)]
    made = [begun(length, turn, f"g{n}") for n, (length, turn) in enumerate(places)]
    found = start_metrics([t for t, _ in made], {t.group_id: anchor for t, anchor in made if anchor.turn})
    shares = [found["anchors/start"], *(found[f"anchors/quarter_{n}"] for n in (1, 2, 3, 4))]
    assert shares == pytest.approx([1 / 8, 1 / 8, 2 / 8, 3 / 8, 1 / 8])
    assert found["prefix_turns"] == sum(turn for _, turn in places)
    assert found["context_tokens"] == 8 * (1 + 2)
    assert start_metrics([], {}) == {}
    plain = start_metrics([t for t, anchor in made if not anchor.turn], {})
    assert "reset_divergence_rate" not in plain, "nothing was replayed: there is no share of it"


def test_hinted_rollouts_and_diverged_replays_are_counted_apart():
    (told, anchor), (plain, _), (lost, far), (kept, near) = (
        begun(4, turn, name) for name, turn in (("h", 0), ("p", 0), ("l", 3), ("k", 1))
    )
    told = replace(told, start=Start(0, hint="Hint: a | a"))
    lost = replace(lost, failure=RolloutFailure("reset_divergence", "", 0))
    anchors = {"h": replace(anchor, hint=2), "l": far, "k": near}
    found = start_metrics([told, plain, lost, kept], anchors)
    assert (found["anchors/hinted"], found["anchors/start"]) == (0.25, 0.25)
    assert (found["hint_turns"], found["reset_divergence_rate"]) == (2, 0.5)


def test_tokens_of_a_failed_step_count_as_sampled():
    one, _ = begun(4, 0, "g")
    assert sampled_tokens([one, replace(one, lost_tokens=4)]) == 3 + 7


def test_an_action_has_effect_where_another_observation_follows():
    walls = replace(played("abcd", passed=False), first_observation="x", observations=("x", "y", "y", "x"))
    assert effective_share([walls]) == 0.5
    noted = replace(walls, internal_turns=(1,))  # the agent's own reply is no observation
    assert effective_share([noted]) == pytest.approx(2 / 3)
    session = replace(walls, turn_labels=(TurnLabel.MAIN,) * 4)
    assert effective_share([walls, session]) == 0.5
    assert math.isnan(effective_share([session]))


def test_turns_to_success_are_of_successes_and_lengths_of_all():
    found = episode_metrics(
        [played("abcd", passed=True), played("ab", passed=True), played("a" * 9, passed=False)]
    )
    assert (found["turns_to_success"], found["effective_share"]) == (3, 1)
    assert (found["turn_tokens"], found["episode_tokens"]) == (1, 5)
    assert math.isnan(episode_metrics([played("a", passed=False)])["turns_to_success"])


def test_growth_is_the_ratio_to_the_first_evaluation():
    assert growth({"turn_tokens": 6.0}, {"turn_tokens": 4.0}) == {"turn_tokens_growth": 1.5}
    assert growth({"turn_tokens": 6.0}, {}) == growth({}, {"turn_tokens": 4.0}) == {}


def test_a_fall_beyond_chance_is_said_from_what_to_what():
    assert "fell from 0.76 to 0.16 with the update of step 1" in fall(2, 0.76, 0.16, 64)
    assert "lower optim.lr" in fall(2, 0.76, 0.16, 64)


@pytest.mark.parametrize(
    ("before", "now", "groups"),
    [
        (0.16, 0.76, 64),
        (0.5, 0.4, 64),
        (0.5, 0.5, 64),
        (0.76, 0.16, 4),
        (math.nan, 0.1, 64),
        (0.9, math.nan, 64),
        (1, 0, 0),
    ],
)
def test_a_rise_or_what_chance_does_to_few_groups_is_no_fall(before: float, now: float, groups: int):
    assert fall(2, before, now, groups) == ""
