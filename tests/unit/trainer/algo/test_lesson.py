"""What `ale train --dry-run` says an algorithm learns from: it follows the options, whatever the algorithm is called."""

import pytest
from algo_cases import CASES, SPECS

from trainer.algo.terms.lesson import lesson_of

EVERY_GROUP = "a group that all passes or all fails teaches nothing"
SUCCESSES = "learns from successes only (rejection sampling): a failure moves nothing"
GROUP = "learns from each rollout's reward less the mean of its group; failures count with weight"


def told(name, group_size=4, **options):
    spec, _ = SPECS[name]
    return lesson_of(spec, spec.build(spec.options(**options)), group_size)


@pytest.mark.parametrize(
    ("name", "options", "said"),
    [
        ("ipa", {}, f"{SUCCESSES}; a turn counts 0.95 of the next one."),
        ("ipa", {"gamma": 1.0}, f"{SUCCESSES}."),
        ("reinforce", {"baseline": "none"}, f"{SUCCESSES}."),
        (
            "ipa",
            {"baseline": "leave_one_out", "gamma": 1.0},
            "learns from successes only, each by its reward less the mean of its group: a failure only lowers that; "
            f"{EVERY_GROUP}.",
        ),
        (
            "ipa",
            {"baseline": "leave_one_out", "neg_weight": 0.3, "gamma": 1.0},
            f"{GROUP} 0.3; {EVERY_GROUP}.",
        ),
        (
            "ipa",
            {"reward_fail": -0.5, "neg_weight": 0.5, "gamma": 1.0},
            "learns from each rollout's reward as it is, without a baseline; failures count with weight 0.25.",
        ),
        (
            "ipa",
            {"baseline": "group_mean", "neg_weight": 1.0, "turn_rewards": True},
            "rewards of turns are added",
        ),
        ("ipa", {"baseline": "state_mean", "neg_weight": 1.0}, "turn by turn of those in the same state"),
        ("ipa", {"lambda_rl": 0.0}, "learns from experts only (imitation): no rollout moves the policy"),
        ("bc", {}, "learns from experts only (imitation): no rollout moves the policy."),
        ("grpo", {}, f"{GROUP} 1; {EVERY_GROUP}."),
        ("grpo", {"kl_weight": 0.3, "kl_place": "loss", "kl_estimator": "k2"}, f"{GROUP} 1; {EVERY_GROUP}."),
        ("rloo", {}, f"{GROUP} 1; {EVERY_GROUP}."),
        ("dapo", {}, f"{GROUP} 1; {EVERY_GROUP}."),
        ("gigpo", {}, "turn by turn of those in the same state"),
        ("reinforce_pp", {}, "learns from each rollout's reward less the mean of the step; failures count"),
        ("ppo", {}, "learns from each rollout's reward less a learned critic's value of each state"),
        (
            "ppo",
            {"gamma": 1.0, "trace": 1.0, "whiten": False},
            "less a learned critic's value of each state.",
        ),
        ("topr", {}, "as it is, without a baseline; failures count with weight 1."),
        ("topr", {"reward_fail": 0.0}, f"{SUCCESSES}."),
    ],
)
def test_the_sentence_follows_the_options(name, options, said):
    assert said in told(name, **options)


@pytest.mark.parametrize("size", [2, 3, 5, 8])
def test_the_weight_of_failures_does_not_depend_on_the_size_of_groups(size):
    assert f"{GROUP} 0.3" in told("ipa", size, baseline="leave_one_out", neg_weight=0.3)
    assert f"{GROUP} 1;" in told("grpo", size)


def test_groups_of_one_have_nothing_to_compare_with():
    assert "in groups of one no rollout differs" in told("grpo", 1)
    assert told("ipa", 1).startswith(SUCCESSES)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_every_algorithm_under_every_setting_has_one_sentence(case):
    spec, _ = SPECS[case.name]
    said = lesson_of(spec, case.build(), 4)
    assert said.startswith("learns from ")
    assert said.endswith(".")
    assert ". " not in said
    assert "nan" not in said
    assert "inf" not in said
