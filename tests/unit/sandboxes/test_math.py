"""The math environment: its questions, the rule that reads answers, and one episode."""

from __future__ import annotations

import ast
import operator
from collections import Counter
from fractions import Fraction
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rock_env.errors import FailedPrecondition, InvalidArgument, UnknownName
from rock_env.plugins import env_params
from rock_env.spec import EnvParams, TaskSpec
from sandboxes.math import ENV
from sandboxes.math.env import MathEnv
from sandboxes.math.families import TRAINED, UNSEEN, draw
from sandboxes.math.params import MathParams
from sandboxes.math.problem import MathProblem, parse
from sandboxes.math.verify import NotAnAnswer, read_answer, render

FAMILIES = [*TRAINED, *UNSEEN]
LEVELS = range(1, 6)
OPERATORS = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.Mod: operator.mod,
    ast.Pow: operator.pow,
}


def calculate(text: str, **names: Fraction) -> Fraction:
    """Compute an expression of the short style, by Python's grammar; `3x` is a product and ^ a power."""

    def of(node: ast.expr) -> Fraction:
        if isinstance(node, ast.BinOp):
            left, right = of(node.left), of(node.right)
            return OPERATORS[type(node.op)](left, int(right) if isinstance(node.op, ast.Pow) else right)
        if isinstance(node, ast.UnaryOp):
            return -of(node.operand)
        return names[node.id] if isinstance(node, ast.Name) else Fraction(node.value)

    for name in names:
        for digit in "0123456789":
            text = text.replace(f"{digit}{name}", f"{digit}*{name}")
    return of(ast.parse(text.replace("^", "**"), mode="eval").body)


def many(family: str, level: int, count: int = 200) -> list[MathProblem]:
    return [draw(family, Random(seed), level) for seed in range(count)]


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("family", ["arithmetic", "fractions", "modular", "polynomial"])
def test_an_expressions_value_is_what_its_text_says(family: str, level: int) -> None:
    for problem in many(family, level):
        if family == "polynomial":
            text, _, x = problem.symbols.partition(";x=")
            assert problem.answer == (calculate(text, x=Fraction(x)),), problem
        elif problem.names:
            left, right = problem.symbols.split("=")
            factor, _, modulus = left.partition("x%")
            solutions = [x for x in range(int(modulus)) if int(factor) * x % int(modulus) == int(right)]
            assert problem.answer == tuple(map(Fraction, solutions)), problem
        else:
            assert problem.answer == (calculate(problem.symbols.rstrip("=")),), problem


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("family", ["linear", "system"])
def test_an_equations_solution_solves_it_and_no_other_does(family: str, level: int) -> None:
    for problem in many(family, level):
        assert problem.words.startswith("Solve ")
        names = dict(zip(problem.names, problem.answer, strict=True))
        sides = [side for row in problem.symbols.split(",") for side in row.split("=")]
        values = [calculate(side, **names) for side in sides]
        assert values[::2] == values[1::2], problem
        for name in names:
            moved = [calculate(side, **{**names, name: names[name] + 1}) for side in sides]
            assert moved[::2] != moved[1::2], f"{problem} has another solution"
    if family == "system":
        for problem in many(family, level):
            rows = [row.split("=")[0] for row in problem.symbols.split(",")]
            one, zero = Fraction(1), Fraction(0)
            (a, b), (c, d) = ((calculate(row, x=one, y=zero), calculate(row, x=zero, y=one)) for row in rows)
            assert a * d != b * c, f"{problem} has many solutions"


def test_percentages_sequences_and_divisors_by_hand() -> None:
    known = {
        "25% of 100=": 25,
        "gcd(60,51)=": 3,
        "lcm(28,48)=": 336,
        "10,12,14,16,?": 18,
        "3,-9,-16,-18,-15,?": -7,
    }
    drawn = {
        problem.symbols: problem
        for family in UNSEEN
        for level in LEVELS
        for problem in many(family, level, 500)
    }
    found = {text: drawn[text].answer for text in known if text in drawn}
    assert found
    assert found == {text: (Fraction(known[text]),) for text in found}


@pytest.mark.parametrize("level", LEVELS)
def test_stories_have_whole_answers_that_are_not_negative(level: int) -> None:
    for problem in many("word_problem", level, 500):
        assert problem.answer[0].denominator == 1, problem
        assert problem.answer[0] >= 0, problem


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("family", FAMILIES)
def test_no_answer_is_right_often_and_questions_seldom_repeat(family: str, level: int) -> None:
    problems = many(family, level, 500)
    most = Counter(problem.answer for problem in problems).most_common(1)[0][1]
    bound = 0.2 * len(problems)
    assert most <= bound, f"the best constant answer is right {most} times in {len(problems)}"
    assert len({problem.symbols for problem in problems}) >= 80


@given(st.sampled_from(FAMILIES), st.sampled_from(LEVELS), st.integers(0, 2**64 - 1))
def test_a_problem_survives_its_payload_and_its_own_answer_is_read(
    family: str, level: int, seed: int
) -> None:
    problem = draw(family, Random(seed), level)
    assert draw(family, Random(seed), level) == problem == parse(problem.payload())
    assert problem.family == family
    for names in {problem.names, ()}:
        answer = render(problem.answer, names)
        for text in (answer, f"\\boxed{{{answer}}}", f"Let me see.\nAnswer: {answer}.\n"):
            assert read_answer(text, problem.names) == problem.answer


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("42", "42"),
        (" 42.\n", "42"),
        ("x = 42", "42"),
        ("X=42", "42"),
        ("\\boxed{42}", "42"),
        ("\\boxed{x = 42}", "42"),
        ("So $x = \\boxed{42}$, I think.", "42"),
        ("\\boxed{1} no, \\boxed{42}", "42"),
        ("2x + 3 = 87\nx = 42", "42"),
        ("The answer is 42.", "42"),
        ("**Answer:** $42$", "42"),
        ("<answer> 42 </answer>", "42"),
        ("+42", "42"),
        ("84/2", "42"),
        ("42.0", "42"),
        ("-3/4", "-3/4"),
        ("−0.75", "-3/4"),
        ("- .75", "-3/4"),
        ("\\boxed{-\\frac{3}{4}}", "-3/4"),
        ("\\boxed{\\dfrac{-6}{8}}", "-3/4"),
        ("6 / -8", None),
        ("1,234", "1234"),
        ("12,34", None),
        ("y = 42", None),
        ("42 = x", None),
        ("forty-two", None),
        ("42 apples", None),
        ("4 2", None),
        ("42 or 43", None),
        ("1/0", None),
        ("\\boxed{\\frac{1}{0}}", None),
        ("\\boxed{42", None),
        ("\\boxed{}", None),
        ("nan", None),
        ("1e3", None),
        ("--1", None),
        ("٤٢", None),
        ("9" * 5000, None),
        ("", None),
    ],
)
def test_which_texts_are_answers(text: str, value: str | None) -> None:
    if value is not None:
        assert read_answer(text, ("x",)) == (Fraction(value),)
        return
    with pytest.raises(NotAnAnswer, match=r"^No answer"):
        read_answer(text, ("x",))


@pytest.mark.parametrize(
    ("text", "right"),
    [
        ("x = 2, y = -3", True),
        ("y = -3; x = 2", True),
        ("x=2 and y=-3.", True),
        ("\\boxed{(2, -3)}", True),
        ("\\boxed{\\left(2, -3\\right)}", True),
        ("2,-3", True),
        ("(4/2, -3.0)", True),
        ("-3, 2", False),
        ("x = 2", None),
        ("x = 2, x = -3", None),
        ("x = 2, -3", None),
        ("x = 2, y = -3, y = 4", None),
        ("x = \\boxed{2}, y = \\boxed{-3}", None),
        ("2 -3", None),
    ],
)
def test_two_unknowns_are_answered_together(text: str, right: bool | None) -> None:
    if right is not None:
        assert (read_answer(text, ("x", "y")) == (2, -3)) is right
        return
    with pytest.raises(NotAnAnswer, match="values for x and y, such as x = 2, y = -3"):
        read_answer(text, ("x", "y"))


@given(st.fractions(), st.fractions(), st.integers(1, 50))
def test_equal_rationals_are_equal_answers_and_others_are_not(
    one: Fraction, other: Fraction, times: int
) -> None:
    top, bottom = one.numerator * times, one.denominator * times
    for text in (
        f"{top}/{bottom}",
        f"\\boxed{{\\frac{{{top}}}{{{bottom}}}}}",
        str(one),
        f"x = {top}/{bottom}",
    ):
        assert read_answer(text, ("x",)) == (one,)
        assert (read_answer(text, ("x",)) == (other,)) == (one == other)


@given(st.text(), st.fractions(), st.sampled_from(["{}", "x = {}", "${}$"]))
def test_what_stands_before_the_box_does_not_matter(before: str, value: Fraction, frame: str) -> None:
    assert read_answer(f"{before}\\boxed{{{frame.format(value)}}}", ("x",)) == (value,)


@given(
    st.text(alphabet="x=y{}\\boxed frac0123456789/,.;()-+$<answer>\n "),
    st.sampled_from([(), ("x",), ("x", "y")]),
)
def test_any_text_is_read_or_refused(text: str, names: tuple[str, ...]) -> None:
    try:
        values = read_answer(text, names)
    except NotAnAnswer:
        return
    assert len(values) == max(1, len(names))


def ask(problem: MathProblem, params: str = "{}") -> tuple[MathEnv, str]:
    env = ENV.factory(env_params(ENV, params))
    assert isinstance(env, MathEnv)
    observation, info = env.reset(TaskSpec("train/0", "train", 0, "", problem.payload()), 0)
    assert info == {"family": problem.family}
    return env, observation


HALF = MathProblem("fractions", "Compute 1/4 + 1/4 as a fraction.", "1/4+1/4=", (Fraction(1, 2),))


def test_one_right_answer_is_one_episode() -> None:
    env, observation = ask(HALF)
    assert observation == "Compute 1/4 + 1/4 as a fraction."
    assert (env.evaluate().passed, env.evaluate().details) == (False, "not answered")
    result = env.step("I add: \\boxed{2/4}")
    assert (result.observation, result.reward, result.terminated, result.info) == ("Right.", 1.0, True, {})
    assert (env.evaluate().reward, env.evaluate().passed) == (1.0, True)
    late = env.step("\\boxed{3}")
    assert (late.observation, late.reward, late.terminated) == ("Right.", 0.0, True)
    assert env.evaluate().passed, "the first answer counts"


def test_a_wrong_answer_and_a_wrong_format_are_told_apart_and_both_fail() -> None:
    env, observation = ask(HALF, '{"style": "symbols"}')
    assert observation == "1/4+1/4="
    wrong = env.step("1/3")
    assert (wrong.observation, wrong.reward, wrong.info) == ("Wrong: expected 1/2, got 1/3.", 0.0, {})
    env, _ = ask(HALF)
    garbled = env.step("a half")
    assert garbled.observation == (
        "No answer could be read: expected one number, such as 42, -7, 3/4 or 0.5, got 'a half'."
    )
    assert (garbled.reward, garbled.terminated, garbled.info) == (0.0, True, {"wrong_format": True})
    assert (env.evaluate().reward, env.evaluate().passed) == (0.0, False)


def test_splits_are_disjoint_by_question_and_by_family() -> None:
    tasks = ENV.tasks(ENV.params())
    drawn = {
        split: [parse(tasks.get(split, index).payload) for index in range(400)] for split in tasks.splits
    }
    assert {problem.family for problem in drawn["train"]} == set(TRAINED)
    assert {problem.family for problem in drawn["held_out"]} == set(TRAINED)
    assert {problem.family for problem in drawn["held_out_family"]} == set(UNSEEN)
    words = {split: {problem.words for problem in problems} for split, problems in drawn.items()}
    assert not words["train"] & words["held_out"]


def test_a_question_of_two_levels_stays_in_its_split() -> None:
    of = [
        {
            ENV.tasks(MathParams(families="modular", min_level=level, max_level=level))
            .get(split, index)
            .payload
            for index in range(300)
        }
        for level, split in ((1, "train"), (2, "held_out"))
    ]
    assert not of[0] & of[1]


def test_arguments_choose_what_is_asked() -> None:
    tasks = ENV.tasks(MathParams(families="linear, system", min_level=5, max_level=5))
    problems = [parse(tasks.get("train", index).payload) for index in range(50)]
    assert {problem.family for problem in problems} == {"linear", "system"}
    assert any(problem.answer[0].denominator > 1 for problem in problems), "fractions come at level 5"
    assert {parse(tasks.get("held_out_family", index).payload).family for index in range(50)} == set(UNSEEN)


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ('{"families": "linear,no_such"}', "no family 'no_such'; the families are arithmetic"),
        ('{"families": "sequence"}', "only in the split held_out_family"),
        ('{"families": ",,,,"}', "an item of ',,,,' is empty"),
        ('{"families": "linear,"}', "an item of 'linear,' is empty"),
        ('{"min_level": 4}', "above max_level 3"),
        ('{"max_level": 6}', "max_level"),
        ('{"style": "latex"}', "style"),
    ],
)
def test_bad_arguments_are_refused(params: str, message: str) -> None:
    with pytest.raises(InvalidArgument, match=message):
        env_params(ENV, params)


@pytest.mark.parametrize(
    "payload",
    [
        "",
        "{}",
        "[]",
        '{"family": "a", "words": "", "symbols": "", "answer": ["1/0"], "names": []}',
        '{"family": "a", "words": "", "symbols": "", "answer": [], "names": []}',
    ],
)
def test_a_payload_that_is_no_problem_is_refused(payload: str) -> None:
    env = ENV.factory(ENV.params())
    with pytest.raises(InvalidArgument, match="math problem"):
        env.reset(TaskSpec("train/0", "train", 0, "", payload), 0)


def test_the_oracle_speaks_the_style() -> None:
    problem = MathProblem("system", "Solve.", "x+y=3,x-y=1", (Fraction(2), Fraction(1)), ("x", "y"))
    task = TaskSpec("train/0", "train", 0, "", problem.payload())
    assert ENV.oracle(MathParams(), task)("") == "\\boxed{x = 2, y = 1}"
    assert ENV.oracle(MathParams(style="symbols"), task)("") == "2, 1"


def test_nothing_works_without_an_episode() -> None:
    env, _ = ask(HALF)
    env.close()
    for call in (lambda: env.step("1"), env.evaluate, env.snapshot):
        with pytest.raises(FailedPrecondition, match="call reset"):
            call()
    with pytest.raises(InvalidArgument, match="expected MathParams"):
        ENV.factory(EnvParams())
    with pytest.raises(UnknownName):
        ENV.tasks(ENV.params()).count("test")


def test_spaces_between_two_values_cost_no_more_than_their_length():
    """The rollout worker reads answers on its event loop: 3,900 spaces took 40 s."""
    text = "\\boxed{1" + " " * 3900 + "2}"
    with pytest.raises(NotAnAnswer):
        read_answer(text, ("x", "y"))
    assert read_answer("\\boxed{1" + " " * 1900 + "and" + " " * 1900 + "2}", ("x", "y")) == (1, 2)
