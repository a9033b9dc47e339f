import pytest

from runorder import CycleError, UnknownTask, parse, plan
from runorder.__main__ import main

DIAMOND = "fetch:\nparse: fetch\nindex: fetch\nreport: parse index\n"


def test_two_tasks_may_need_the_same_one():
    assert plan({"report": ["parse", "index"], "parse": ["fetch"], "index": ["fetch"], "fetch": []}) == [
        "fetch",
        "parse",
        "index",
        "report",
    ]


def test_a_deep_ladder_is_planned_once_each():
    # Walking every path through it would take 2 ** 40 visits.
    needs = {f"{level}{side}": [f"{level - 1}l", f"{level - 1}r"] for level in range(1, 40) for side in "lr"}
    needs |= {"0l": [], "0r": []}
    order = plan(needs)
    assert sorted(order) == sorted(needs)
    assert all(order.index(need) < order.index(name) for name in needs for need in needs[name])


def test_the_error_names_only_the_cycle():
    with pytest.raises(CycleError) as caught:
        plan({"start": ["a", "b"], "a": [], "b": ["a", "c"], "c": ["b"]})
    assert caught.value.cycle == ["b", "c", "b"]


def test_the_command_prints_a_diamond(tmp_path, capsys):
    file = tmp_path / "tasks.txt"
    file.write_text(DIAMOND)
    assert main([str(file)]) == 0
    assert capsys.readouterr().out.split() == ["fetch", "parse", "index", "report"]


def test_a_chain_is_turned_round():
    assert plan({"a": ["b"], "b": ["c"], "c": []}) == ["c", "b", "a"]


def test_independent_tasks_keep_their_order():
    assert plan(parse("one:\ntwo:\nthree:\n")) == ["one", "two", "three"]


def test_a_task_that_needs_itself_is_a_cycle():
    with pytest.raises(CycleError) as caught:
        plan({"a": ["a"]})
    assert caught.value.cycle == ["a", "a"]


def test_an_unknown_need_is_refused():
    with pytest.raises(UnknownTask, match="nope"):
        plan({"a": ["nope"]})


def test_only_what_is_asked_for_is_planned():
    assert plan({"a": ["b"], "b": [], "c": []}, ["a"]) == ["b", "a"]
