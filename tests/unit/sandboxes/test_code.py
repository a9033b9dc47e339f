"""The code environment without a box: its functions, its splits, and what the grade believes."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rock_env.env import Verdict
from rock_env.errors import InfraError, InvalidArgument, UnknownName
from rock_env.plugins import env_params
from rock_env.sandbox import ExecResult
from rock_env.spec import EnvParams
from sandboxes.code import ENV, run_in_box
from sandboxes.code.catalog import PROBLEMS, SPLITS, find
from sandboxes.code.env import source_of
from sandboxes.code.families import TRAINED, UNSEEN
from sandboxes.code.grade import _CANARY, _Run
from sandboxes.code.problem import EXAMPLES, HIDDEN, Call, CodeProblem

FAMILIES = (*TRAINED, *UNSEEN)
DOUBLES = PROBLEMS["count_doubles"]


def function(problem: CodeProblem) -> Callable[..., Any]:
    space: dict[str, Any] = {}
    exec(problem.solution, space)
    return space[problem.name]


def passes(candidate: Callable[..., Any], calls: tuple[Call, ...]) -> bool:
    for call in calls:
        try:
            returned = candidate(*json.loads(json.dumps(call.arguments)))
        except Exception:  # noqa: BLE001  whatever a wrong function raises
            return False
        if json.dumps(returned, sort_keys=True) != call.expected:
            return False
    return True


def test_there_are_enough_functions_each_in_one_split() -> None:
    assert len(FAMILIES) >= 16
    assert all(len(problems) >= 10 for problems in FAMILIES)
    tasks = ENV.tasks(ENV.params())
    names = [tasks.get(split, index).payload for split in SPLITS for index in range(tasks.count(split))]
    assert sorted(names) == sorted(problem.name for problems in FAMILIES for problem in problems)
    assert len(set(names)) == len(names) >= 170
    assert [tasks.count(split) for split in SPLITS] == [118, 26, 32]


def test_splits_keep_families_apart() -> None:
    tasks = ENV.tasks(ENV.params())
    of = {
        split: {find(tasks.get(split, index).payload).family for index in range(tasks.count(split))}
        for split in SPLITS
    }
    assert of["train"] == of["held_out"] == {problems[0].family for problems in TRAINED}
    assert of["held_out_family"] == {problems[0].family for problems in UNSEEN}
    some = ENV.tasks(env_params(ENV, '{"families": "digits"}'))
    assert [some.count(split) for split in SPLITS] == [9, 2, 32]
    held_out = {some.get("held_out", index).payload for index in range(2)}
    assert held_out <= {tasks.get("held_out", index).payload for index in range(tasks.count("held_out"))}


@pytest.mark.parametrize("problem", PROBLEMS.values(), ids=lambda problem: problem.name)
def test_a_function_is_asked_for_by_its_own_examples_and_no_constant_passes(problem: CodeProblem) -> None:
    assert len(problem.examples()) == EXAMPLES
    assert len(problem.hidden()) == HIDDEN
    known = [json.dumps(call.arguments) for call in (*problem.examples(), *problem.hidden())]
    assert len(set(known)) == len(known), "no call is shown and hidden, or made twice"
    assert passes(function(problem), (*problem.examples(), *problem.hidden()))
    assert len({call.expected for call in problem.hidden()}) > 1
    question = problem.question()
    compile(question, "question", "exec")
    assert question.startswith(f"def {problem.name}(")
    for call in problem.examples():
        assert (
            f">>> {problem.name}({', '.join(map(repr, call.arguments))})\n    {call.returns!r}\n" in question
        )
    assert problem.solution.splitlines()[0] == question.splitlines()[0]


@pytest.mark.parametrize("problems", FAMILIES, ids=lambda problems: problems[0].family)
def test_no_function_of_a_family_passes_for_another(problems: tuple[CodeProblem, ...]) -> None:
    """The nearest wrong answers: they fit the signature, and mean something else."""
    for problem in problems:
        for other in problems:
            assert passes(function(other), problem.hidden()) is (other is problem), (problem.name, other.name)


@pytest.mark.parametrize("problem", PROBLEMS.values(), ids=lambda problem: problem.name)
def test_giving_an_argument_back_is_no_solution(problem: CodeProblem) -> None:
    assert not passes(lambda *arguments: arguments[0], problem.hidden())
    assert not passes(lambda *arguments: arguments[-1], problem.hidden())


def played(tmp_path: Path, source: str, problem: CodeProblem = DOUBLES, **changed: Any) -> Verdict:
    """Grade as in a box, with this Python and no box."""
    run = _Run(problem, source)
    return run.verdict(executed(tmp_path, run, **changed))


def executed(tmp_path: Path, run: _Run, **changed: Any) -> ExecResult:
    (tmp_path / run.program).parent.mkdir(parents=True)
    (tmp_path / run.program).write_bytes(run.script)
    done = subprocess.run([sys.executable, run.program], cwd=tmp_path, capture_output=True, check=False)
    code = done.returncode
    ended = {"exit_code": code, "signal": None} if code >= 0 else {"exit_code": None, "signal": -code}
    return ExecResult(**{"stdout": done.stdout, "stderr": done.stderr, "duration_s": 0.0, **ended, **changed})


def test_the_solution_passes_and_leaves_nothing(tmp_path: Path) -> None:
    verdict = played(tmp_path, DOUBLES.solution)
    assert (verdict.reward, verdict.passed, verdict.details) == (1.0, True, "24 of 24 hidden calls right")
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


WRONG = {
    "a constant": ("def count_doubles(text):\n    return 1\n", r"^\d+ of 24 hidden calls right$"),
    "the other type": (
        f"{DOUBLES.solution.replace('count_doubles', 'f')}\ndef count_doubles(text):\n    return str(f(text))\n",
        "^0 of 24",
    ),
    "a truth value for a number": (
        "def count_doubles(text):\n    return any(a == b for a, b in zip(text, text[1:]))\n",
        " of 24",
    ),
    "a float for a number": (
        DOUBLES.solution.replace("return ", "return 1.0 * "),
        "^0 of 24 hidden calls right; raised TypeError$",
    ),
    "printed": (
        DOUBLES.solution.replace("return ", "print(").rstrip() + ")\n",
        "^0 of 24 hidden calls right$",
    ),
    "nothing": ("", r"does not load \(NoSuchFunction\)"),
    "no Python": ("I would count them.", r"does not load \(SyntaxError\)"),
    "null bytes": ("def count_doubles(text): pass\x00", "does not load"),
    "an error": (
        "def count_doubles(text):\n    raise KeyError(text)\n",
        "^0 of 24 hidden calls right; raised KeyError$",
    ),
    "an exit": ("import sys\ndef count_doubles(text):\n    sys.exit(0)\n", "raised SystemExit"),
    "endless recursion": (
        "def count_doubles(text):\n    return count_doubles(text)\n",
        "raised RecursionError",
    ),
    "endless data": (
        "def count_doubles(text):\n    a = []\n    a.append(a)\n    return a\n",
        "raised TypeError",
    ),
    "much data": ("def count_doubles(text):\n    return [1] * 100000\n", "raised TooLong"),
}


@pytest.mark.parametrize(("source", "details"), WRONG.values(), ids=WRONG)
def test_wrong_functions_fail_and_the_details_say_how(tmp_path: Path, source: str, details: str) -> None:
    verdict = played(tmp_path, source)
    assert (verdict.reward, verdict.passed) == (0.0, False)
    assert re.search(details, verdict.details), verdict.details


SUBCLASSES = {
    "IntEnum": ("count_doubles", "enum.IntEnum('N', {'X': right}).X"),
    "a kind of text": ("sort_words", "type('S', (str,), {'__str__': lambda self: ''})(right)"),
    "OrderedDict": ("count_items", "collections.OrderedDict(right)"),
    "Counter": ("count_items", "collections.Counter(right)"),
    "defaultdict": ("count_items", "collections.defaultdict(int, right)"),
    "a kind of list": ("squares", "type('L', (list,), {'__iter__': lambda self: iter(())})(right)"),
    "a named tuple": (
        "squares",
        "collections.namedtuple('N', [f'f{n}' for n in range(len(right))])(*right)",
    ),
    "keys of a kind of text": (
        "count_items",
        "{type('S', (str,), {})(key): value for key, value in right.items()}",
    ),
}


@pytest.mark.parametrize("kind", SUBCLASSES)
def test_a_subclass_counts_as_its_base(tmp_path: Path, kind: str) -> None:
    name, made = SUBCLASSES[kind]
    solution = PROBLEMS[name].solution.replace(f"def {name}(", "def _right(")
    source = f"import collections, enum\n{solution}\ndef {name}(*args):\n    right = _right(*args)\n    return {made}\n"
    assert played(tmp_path, source, PROBLEMS[name]).details == "24 of 24 hidden calls right"
    wrong = source.replace("right = _right(*args)", "right = type(_right(*args))()")
    assert not played(tmp_path / "wrong", wrong, PROBLEMS[name]).passed


CHEATS = {
    "equal to everything": (
        "class All(int):\n    __eq__ = lambda *_: True\n    __hash__ = int.__hash__\n"
        "def count_doubles(text):\n    return All()\n"
    ),
    "leaving early": "import os\ndef count_doubles(text):\n    os._exit(0)\n",
    "leaving on import": "import os\nos._exit(0)\ndef count_doubles(text): pass\n",
    "writing a report": (
        "import os\nfor n in range(3, 20):\n    try:\n        os.write(n, b'returned a 1\\nend\\n')\n"
        "    except OSError:\n        pass\n"
    ),
    "another encoder": "import json\njson.dumps = json.JSONEncoder.encode = lambda *_, **__: '1'\n",
    "another loader": "import json\njson.loads = lambda text: [['aa']]\n",
    "the runner's functions": (
        "import sys\nframe = sys._getframe()\nwhile frame:\n"
        "    for space in (frame.f_locals, frame.f_globals):\n"
        "        for name in ('_canary', '_plain', 'own', 'plain'):\n"
        "            if name in space:\n                space[name] = lambda *_: 1\n"
        "    frame = frame.f_back\n"
    ),
    "the runner's code": (
        "import sys\ndef one(*_):\n    return 1\nframe = sys._getframe()\nwhile frame:\n"
        "    for name in ('_canary', '_plain'):\n"
        "        if name in frame.f_globals:\n            frame.f_globals[name].__code__ = one.__code__\n"
        "    frame = frame.f_back\n"
    ),
}


@pytest.mark.parametrize("cheat", CHEATS.values(), ids=CHEATS)
def test_a_wrong_function_does_not_pass_by_changing_its_run(tmp_path: Path, cheat: str) -> None:
    source = cheat if "def count_doubles" in cheat else f"def count_doubles(text):\n    return 1\n{cheat}"
    verdict = played(tmp_path, source)
    assert (verdict.reward, verdict.passed) == (0.0, False), verdict


def test_a_run_whose_canaries_come_back_wrong_is_not_believed(tmp_path: Path) -> None:
    cheat = CHEATS["the runner's code"].replace("return 1", "return [1]")
    verdict = played(tmp_path, DOUBLES.solution + cheat)
    assert verdict.details.endswith("a call whose result is certain returned another")


def test_neither_a_result_nor_a_name_that_tells_enters_the_box() -> None:
    problem = PROBLEMS["roman_value"]
    script = _Run(problem, "").script.decode()
    assert problem.solution not in script
    assert all(json.dumps(call.arguments) in script for call in problem.hidden())
    assert not any(
        f'"{call.expected}"' in script or f" {call.expected}," in script for call in problem.hidden()
    )


def test_a_loop_without_end_costs_its_processor_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runner = Path(run_in_box.__file__).read_text().replace(f"CPU_S = {run_in_box.CPU_S}", "CPU_S = 1")
    monkeypatch.setattr("sandboxes.code.grade._RUNNER", runner)
    verdict = played(tmp_path, "def count_doubles(text):\n    while True:\n        pass\n")
    assert (
        f"did not come to its end (signal {signal.SIGXCPU.value}" in verdict.details
        or "signal 9" in verdict.details
    )


def test_whose_failure_it_is(tmp_path: Path) -> None:
    with pytest.raises(
        InfraError, match=r"Python does not start in this sandbox \(exit code 127: no rock-python"
    ):
        _Run(DOUBLES, "").verdict(ExecResult(127, None, b"", b"no rock-python", 0.0))
    with pytest.raises(InfraError, match="the plug"):
        _Run(DOUBLES, "").verdict(ExecResult(None, None, b"", b"", 0.0, infra_error="the plug"))
    slow = played(tmp_path, DOUBLES.solution, timed_out=True)
    assert "took longer than 60 s" in slow.details


def lines_of(run: _Run) -> list[str]:
    results = {label: call.expected for label, call in run._hidden.items()}
    results |= {label: json.dumps([n + 1 for n in reversed(ns)]) for label, ns in run._canaries.items()}
    return ["ready", *(f"returned {label} {text}" for label, text in results.items()), "end"]


def heard(run: _Run, lines: list[str], exit_code: int | None = None) -> Verdict:
    said = "".join(f"{run._token} {line}\n" for line in lines).encode()
    return run.verdict(ExecResult(run._exit_code if exit_code is None else exit_code, None, said, b"", 0.0))


@given(st.integers(0, 2**32))
def test_only_a_whole_run_is_believed(seed: int) -> None:
    run, rng = _Run(DOUBLES, ""), Random(seed)
    lines = lines_of(run)
    assert heard(run, lines).passed
    place = rng.randrange(1, len(lines))
    assert not heard(run, lines[:place]).passed, "cut off"
    assert not heard(run, [*lines[:place], *lines[place + 1 :]]).passed, "a line is missing"
    assert not heard(run, [*lines[:place], lines[max(1, place - 1)], *lines[place:]]).passed, (
        "a line comes twice"
    )
    assert not heard(run, lines, exit_code=0).passed
    said = [f"{run._token} {line}" for line in lines]
    said.insert(place, "returned x 1")
    foreign = "".join(f"{line}\n" for line in said).encode()
    assert not run.verdict(ExecResult(run._exit_code, None, foreign, b"", 0.0)).passed, "somebody else's line"
    label = rng.choice([*run._hidden, *run._canaries])
    assert not heard(
        run, [f"returned {label} 17x" if f" {label} " in line else line for line in lines]
    ).passed
    assert not heard(
        run, [f"raised {label} KeyError" if f" {label} " in line else line for line in lines]
    ).passed


def test_each_run_has_its_own_names() -> None:
    one, two = _Run(DOUBLES, ""), _Run(DOUBLES, "")
    assert not {one._token, one.program, *one._hidden, *one._canaries} & {
        two._token,
        two.program,
        *two._hidden,
    }
    assert one.script.count(f"'{_CANARY}'".encode()) == len(one._canaries) == 4
    assert {_CANARY} == {run_in_box.CANARY}


@pytest.mark.parametrize(
    ("action", "source"),
    [
        ("def f(): pass", "def f(): pass"),
        ("```python\ndef f(): pass\n```", "def f(): pass\n"),
        ("Here:\n```py\none\n```\nor rather\n```\ntwo\n```\nDone.", "two\n"),
        ("  ```Python\n  one\n  ```", "  one\n"),
        ("```python\nnever closed", "```python\nnever closed"),
        ("```sh\nls\n```", "```sh\nls\n```"),
        ("", ""),
    ],
)
def test_the_last_block_is_the_answer(action: str, source: str) -> None:
    assert source_of(action) == source


@given(st.text(alphabet="`python \nx"), st.text(alphabet="abc =\n", min_size=1))
def test_what_stands_before_the_last_block_does_not_matter(before: str, body: str) -> None:
    text = before.replace("```", "")
    assert source_of(f"{text}\n```python\n{body}\n```") == f"{body}\n"


def test_bad_arguments_are_refused() -> None:
    with pytest.raises(InvalidArgument, match="no family 'x'; the families are count_characters"):
        env_params(ENV, '{"families": "x"}')
    with pytest.raises(InvalidArgument, match="an item of ',' is empty"):
        env_params(ENV, '{"families": ","}')
    with pytest.raises(InvalidArgument, match="only in the split held_out_family"):
        env_params(ENV, '{"families": "commands"}')
    for call in (ENV.factory, ENV.tasks):
        with pytest.raises(InvalidArgument, match="expected CodeParams"):
            call(EnvParams())
    with pytest.raises(UnknownName, match="no code task 'x' among 176"):
        find("x")
    with pytest.raises(InvalidArgument, match="32 tasks, numbered from 0"):
        ENV.tasks(ENV.params()).get("held_out_family", 32)
