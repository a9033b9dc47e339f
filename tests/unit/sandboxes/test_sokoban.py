"""Sokoban's rules and rewards, its generator, the reader of Boxoban files and the oracle."""

from __future__ import annotations

from pathlib import Path

import pytest

from rock_env.errors import FailedPrecondition, InvalidArgument, NotFound, ResourceExhausted, UnknownName
from rock_env.plugins import env_params
from rock_env.spec import EnvParams, TaskSpec
from sandboxes.sokoban import ENV, oracle
from sandboxes.sokoban.env import Sokoban, direction_of
from sandboxes.sokoban.generator import Shape, random_level
from sandboxes.sokoban.level import DIRECTIONS, SYMBOLS, check_level, read_boxoban, render, unrender

CORRIDOR = "#######\n#@$ . #\n#######"
TWO = "######\n#@$.##\n# $. #\n#    #\n######"
BOXOBAN = SYMBOLS["boxoban"]


def task(level: str) -> TaskSpec:
    return TaskSpec("train/0", "train", 0, "", level)


def play(level: str, params: str = "{}") -> tuple[Sokoban, str]:
    env = ENV.factory(env_params(ENV, params))
    assert isinstance(env, Sokoban)
    observation, info = env.reset(task(level), 0)
    assert info == {}
    return env, observation


def moves(env: Sokoban, *words: str) -> list[tuple[str, float]]:
    return [(result.observation, round(result.reward, 6)) for result in map(env.step, words)]


def test_pushing_a_box_onto_the_target_solves_and_pays() -> None:
    env, observation = play(CORRIDOR)
    assert observation == "#######\n#PX_O_#\n#######"
    assert moves(env, "right") == [("#######\n#_PXO_#\n#######", -0.1)]
    assert not env.evaluate().passed
    last = env.step("right")
    assert (last.observation, round(last.reward, 6)) == ("#######\n#__P√_#\n#######", 10.9)
    assert (last.terminated, last.truncated, env.evaluate().reward) == (True, False, 1.0)
    after = env.step("right")
    assert (after.observation, after.reward, after.terminated) == (last.observation, 0.0, True)


def test_pushing_a_box_off_its_target_costs_and_the_player_stands_on_it() -> None:
    env, _ = play("#######\n#@* ###\n#   $.#\n#######")
    assert moves(env, "right", "left", "down", "right") == [
        ("#######\n#_SX###\n#___XO#\n#######", -1.1),
        ("#######\n#POX###\n#___XO#\n#######", -0.1),
        ("#######\n#_OX###\n#P__XO#\n#######", -0.1),
        ("#######\n#_OX###\n#_P_XO#\n#######", -0.1),
    ]


def test_a_box_pushed_from_target_to_target_pays_nothing_extra() -> None:
    env, _ = play("#######\n#@*.$ #\n#######")
    assert moves(env, "right") == [("#######\n#_S√X_#\n#######", -0.1)]


@pytest.mark.parametrize(
    "level", ["#####\n#@$##\n#.  #\n#####", "######\n#@$$ #\n#.. ##\n######", "#####\n#@$*#\n#.  #\n#####"]
)
def test_walls_and_boxes_stop_a_box(level: str) -> None:
    env, observation = play(level)
    assert moves(env, "right", "up", "left") == [(observation, -0.1)] * 3
    assert env.step("right").info == {}


def test_one_of_two_boxes_is_not_a_success() -> None:
    env, _ = play(TWO)
    first = env.step("right")
    assert (round(first.reward, 6), first.terminated, env.evaluate().passed) == (0.9, False, False)
    env.step("left")
    env.step("down")
    second = env.step("right")
    assert (round(second.reward, 6), second.terminated, env.evaluate().passed) == (10.9, True, True)


def test_an_illegal_action_uses_a_turn_and_moves_nothing() -> None:
    env, observation = play(CORRIDOR, '{"max_turns": 2}')
    first, second = env.step("pull"), env.step("")
    assert first.info == second.info == {"illegal": True}
    assert (first.observation, first.reward, first.truncated) == (observation, -0.1, False)
    assert second.truncated
    late = env.step("right")
    assert (late.observation, late.reward, late.truncated, late.terminated) == (observation, 0.0, True, False)


def test_boxoban_symbols_are_the_canonical_ones() -> None:
    level = "#######\n#@* $.#\n#######"
    env, observation = play(level, '{"symbols": "boxoban"}')
    assert observation == level
    assert env.step("right").observation == "#######\n# +$$.#\n#######"
    assert all(
        unrender(render(text, symbols), symbols) == text for text in (level, TWO) for symbols in SYMBOLS
    )


@pytest.mark.parametrize("symbols", SYMBOLS)
def test_levels_of_new_symbols_are_held_out_ones_in_others(symbols: str) -> None:
    params = env_params(ENV, f'{{"symbols": "{symbols}"}}')
    source = ENV.tasks(params)
    assert source.splits == ("train", "held_out", "held_out_symbols")
    assert source.count("held_out_symbols") == source.count("held_out")
    env = ENV.factory(params)
    for index in range(10):
        known, new = source.get("held_out", index), source.get("held_out_symbols", index)
        assert (new.id, new.payload) == (f"held_out_symbols/{index}", known.payload)
        shown, _ = env.reset(known, 0)
        observation, _ = env.reset(new, 0)
        assert observation != shown
        assert observation == ENV.factory(params).reset(new, 0)[0]
        assert set(observation) - {"\n"} <= set(SYMBOLS["roll" if symbols == "letters" else "letters"])
        assert all(f"{cell} " in new.instruction for cell in observation if cell != "\n")
        player, solution = ENV.oracle(params, new), oracle.shortest_solution(known.payload, BOXOBAN)
        assert solution is not None
        for _ in solution:
            assert not env.evaluate().passed
            observation = env.step(player(observation)).observation
        assert env.evaluate().passed
        assert ENV.optimum(params, new) == 1.0
        tight = env_params(ENV, f'{{"symbols": "{symbols}", "max_turns": {max(len(solution) - 1, 1)}}}')
        assert ENV.optimum(tight, new) == float(len(solution) == 1)


def test_a_snapshot_keeps_the_symbols_of_its_task() -> None:
    params = env_params(ENV, "{}")
    env, other = ENV.factory(params), ENV.factory(params)
    observation, _ = env.reset(ENV.tasks(params).get("held_out_symbols", 0), 0)
    assert isinstance(env, Sokoban)
    assert isinstance(other, Sokoban)
    assert other.restore(env.snapshot()) == observation
    assert other.step("up") == env.step("up")
    before = (
        b'{"sokoban": "#######\\n#PX_O_#\\n#######", "turn": 0}'  # of the version that had no other symbols
    )
    assert other.restore(before) == "#######\n#PX_O_#\n#######"
    for symbols in (b'"none"', b"[]"):
        with pytest.raises(InvalidArgument, match="not a sokoban snapshot"):
            other.restore(before[:-1] + b', "symbols": ' + symbols + b"}")


@pytest.mark.parametrize(
    ("action", "direction"),
    [
        ("up", 0),
        ("DOWN.", 1),
        ("\\boxed{left}", 2),
        ("up? no: right", 3),
        ("upper", None),
        ("", None),
        ("1", None),
    ],
)
def test_the_last_direction_word_counts(action: str, direction: int | None) -> None:
    assert direction_of(action) == direction


@pytest.mark.parametrize(("rows", "cols", "boxes"), [(6, 6, 1), (8, 8, 2), (6, 9, 2), (10, 7, 3)])
def test_generated_levels_are_valid_unsolved_and_solvable_in_time(rows: int, cols: int, boxes: int) -> None:
    limit = rows * cols
    levels = [random_level(Shape(rows, cols, boxes, limit), seed) for seed in range(25)]
    assert levels == [random_level(Shape(rows, cols, boxes, limit), seed) for seed in range(25)]
    assert len(set(levels)) > 20
    for level in levels:
        check_level(level, "a generated level")
        assert [len(row) for row in level.split("\n")] == [cols] * rows
        assert (level.count("$"), level.count("*")) == (boxes, 0)
        solution = oracle.shortest_solution(level, BOXOBAN)
        assert solution is not None
        assert 0 < len(solution) <= limit


def test_a_shape_that_cannot_hold_its_boxes_is_an_error() -> None:
    with pytest.raises(InvalidArgument, match="no solvable 6x6 level with 6 boxes"):
        random_level(Shape(6, 6, 6, 36), 0)


def breadth_first(level: str) -> int | None:
    """Return the length of a shortest solution by the environment's own steps: slow, independent of the oracle."""
    env, _ = play(level, '{"max_turns": 1000}')
    start = env.snapshot()
    seen, frontier, depth = {start}, [start], 0
    while frontier:
        following: list[bytes] = []
        depth += 1
        for state in frontier:
            for word in DIRECTIONS:
                env.restore(state.replace(b'"turn": 1', b'"turn": 0'))
                if env.step(word).terminated:
                    return depth
                after = env.snapshot().replace(b'"turn": 1', b'"turn": 0')
                if after not in seen:
                    seen.add(after)
                    following.append(after)
        frontier = following
    return None


@pytest.mark.parametrize("seed", range(12))
def test_the_oracle_is_as_short_as_plain_breadth_first_search(seed: int) -> None:
    for level in (random_level(Shape(6, 6, 1, 30), seed), random_level(Shape(6, 6, 2, 36), seed)):
        solution = oracle.shortest_solution(level, BOXOBAN)
        assert solution is not None
        assert len(solution) == breadth_first(level)


@pytest.mark.parametrize("level", ["#####\n#$ .#\n#  @#\n#####", "######\n#.$$.#\n##@###\n######"])
def test_a_dead_level_has_no_solution_and_the_oracle_still_answers(level: str) -> None:
    assert breadth_first(level) is None
    assert oracle.shortest_solution(level, BOXOBAN) is None
    params = env_params(ENV, '{"symbols": "boxoban", "max_turns": 5}')
    assert ENV.optimum(params, task(level)) == 0.0
    assert ENV.oracle(params, task(level))(level) in DIRECTIONS


def test_the_oracle_plans_again_when_led_astray() -> None:
    level = random_level(Shape(8, 8, 2, 60), 4)
    env, observation = play(level, '{"level": "8x8", "max_turns": 500}')
    player = ENV.oracle(env_params(ENV, '{"level": "8x8"}'), task(level))
    for turn in range(500):
        word = player(observation)
        if turn % 3 == 2:
            word = next(w for w in DIRECTIONS if w != word and solvable_after(env, w))
        result = env.step(word)
        observation = result.observation
        if result.terminated:
            break
    assert env.evaluate().passed
    assert turn > 3


def solvable_after(env: Sokoban, word: str) -> bool:
    state = env.snapshot()
    observation = env.step(word).observation
    env.restore(state)
    return oracle.shortest_solution(observation, SYMBOLS["roll"]) is not None


def test_a_search_without_end_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(oracle, "MAX_STATES", 50)
    with pytest.raises(ResourceExhausted, match="among 50 states"):
        oracle.shortest_solution(random_level(Shape(8, 8, 2, 60), 0), BOXOBAN)


def test_optimum_is_one_exactly_when_the_limit_allows_it() -> None:
    for index in range(20):
        level = ENV.tasks(env_params(ENV, "{}")).get("train", index)
        solution = oracle.shortest_solution(level.payload, BOXOBAN)
        assert solution is not None
        assert ENV.optimum(env_params(ENV, "{}"), level) == 1.0
        assert ENV.optimum(env_params(ENV, f'{{"max_turns": {len(solution)}}}'), level) == 1.0
        if len(solution) > 1:
            assert ENV.optimum(env_params(ENV, f'{{"max_turns": {len(solution) - 1}}}'), level) == 0.0


def boxoban(folder: Path, text: str) -> str:
    path = folder / "levels.txt"
    path.write_text(text, encoding="utf-8")
    return str(path)


def test_a_boxoban_file_is_the_task_list(tmp_path: Path) -> None:
    levels = [random_level(Shape(10, 10, 2, 100), seed) for seed in range(10)]
    path = boxoban(
        tmp_path, "\n\n".join(f"; {number}\n{level}" for number, level in enumerate(levels)) + "\n"
    )
    assert list(read_boxoban(path)) == levels
    params = ENV.params.model_validate({"boxoban_file": path})
    tasks = ENV.tasks(params)
    assert (tasks.count("train"), tasks.count("held_out")) == (8, 2)
    assert tasks.get("held_out_symbols", 1).payload == tasks.get("held_out", 1).payload
    got = {tasks.get(split, index).payload for split in tasks.splits for index in range(tasks.count(split))}
    assert got == set(levels)
    env = ENV.factory(params)
    assert isinstance(env, Sokoban)
    observation, _ = env.reset(tasks.get("held_out", 1), 0)
    assert unrender(observation, "roll") in levels


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "no levels"),
        ("#####\n", "line 1 is '#####', expected '; N'"),
        ("; 0\n; 1\n" + CORRIDOR, r"level '0' \(line 1\) has no rows"),
        ("; 0\n" + CORRIDOR + "\n\n; 7\n#####\n#@$.\n#####", r"level '7' \(line 6\).*row 2 has 4 characters"),
        ("; 0\n#####\n#@$?#\n#####", r"row 2 has \['\?'\]"),
        ("; 0\n#####\n @$.#\n#####", "wall '#' at both ends"),
        ("; 0\n#### \n#@$.#\n#####", "wall '#' at both ends"),
        ("; 0\n## ##\n#@$.#\n#####", "walls '#' only"),
        ("; 0\n##\n##\n##", "expected at least 3 by 3"),
        ("; 0\n######\n# $. #\n######", "got 0 players"),
        ("; 0\n######\n#@$ +#\n######", "got 2 players"),
        ("; 0\n######\n#@$$.#\n######", "2 boxes and 1 targets"),
        ("; 0\n######\n#@   #\n######", "no box"),
        ("; 0\n######\n#@*  #\n######", "solved already"),
    ],
)
def test_a_malformed_boxoban_file_names_level_and_line(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(InvalidArgument, match=message):
        read_boxoban(boxoban(tmp_path, text))


def test_an_unreadable_boxoban_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match=r"missing.txt.*Check boxoban_file"):
        ENV.tasks(ENV.params.model_validate({"boxoban_file": str(tmp_path / "missing.txt")}))
    binary = tmp_path / "binary.txt"
    binary.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InvalidArgument, match="not text"):
        read_boxoban(str(binary))


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ('{"level": "custom", "rows": 8}', "needs rows, cols and boxes"),
        ('{"rows": 8, "cols": 8, "boxes": 1}', "custom levels only"),
        ('{"boxoban_file": "x", "level": "8x8"}', "remove level"),
        ('{"level": "custom", "rows": 5, "cols": 8, "boxes": 1}', "rows"),
        ('{"level": "7x7"}', "level"),
        ('{"max_turns": 0}', "max_turns"),
    ],
)
def test_bad_arguments_are_refused(params: str, message: str) -> None:
    with pytest.raises(InvalidArgument, match=message):
        env_params(ENV, params)


def test_unknown_arguments_name_the_nearest() -> None:
    with pytest.raises(UnknownName, match="symbols"):
        env_params(ENV, '{"symbol": "roll"}')


@pytest.mark.parametrize("state", [b"", b"{}", b"[]", b"\xff", b'{"sokoban": "#P#", "turn": 0}'])
def test_bytes_that_are_no_snapshot_are_refused(state: bytes) -> None:
    env, _ = play(CORRIDOR)
    with pytest.raises(InvalidArgument, match="snapshot"):
        env.restore(state)


def test_nothing_works_without_an_episode() -> None:
    env, _ = play(CORRIDOR)
    env.close()
    for call in (lambda: env.step("up"), env.evaluate, env.snapshot):
        with pytest.raises(FailedPrecondition, match="call reset"):
            call()


def test_another_environments_arguments_and_tasks_are_refused() -> None:
    with pytest.raises(InvalidArgument, match="expected SokobanParams"):
        ENV.factory(EnvParams())
    with pytest.raises(InvalidArgument, match="payload of task 'train/0'"):
        play("SFF\nFHF\nFFG")


def test_the_instruction_follows_the_arguments_and_not_the_task() -> None:
    def told(params: str, index: int) -> str:
        return ENV.tasks(env_params(ENV, params)).get("train", index).instruction

    assert told("{}", 0) == told("{}", 7)
    assert "within 30 turns" in told("{}", 0)
    assert "X box, √ box on a target" in told("{}", 0)
    assert "within 60 turns" in told('{"level": "8x8"}', 0)
    assert "a space is floor" in told('{"symbols": "boxoban"}', 0)
