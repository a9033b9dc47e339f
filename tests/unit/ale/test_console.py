"""What the console serves of runs: what `ale replay` and `ale compare` say, for whole runs, damaged and growing ones."""

from __future__ import annotations

import asyncio
import json
import re
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from console_run import client, named, plain, write_metrics, write_run
from starlette.requests import Request

from agent_runtime.store import segment_path, write_segment
from ale.console import app as console_app
from ale.console.answers import changes
from ale.console.app import LOOKS_S
from ale.console.catalog import PLACE, Catalog
from ale.console.run import Columns, WatchedRun, parting
from ale.errors import RecordError
from ale.replay.listing import fields_of
from ale.replay.records import why_contexts_begin_anew
from ale.replay.rows import rows, rows_of_file
from ale.replay.showing import lines_of, transcript
from rock_env.telemetry.shown import visible


def test_runs_are_listed_by_places_that_they_keep(tmp_path: Path) -> None:
    write_run(tmp_path / "b", {1: named("one")})
    (tmp_path / "no run").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "b")
    asks = client(tmp_path)
    assert [(run["place"], run["name"]) for run in asks.get("/api/runs").json()["runs"]] == [("b", "b")]
    write_run(tmp_path / "a", {2: named("two")})
    found = asks.get("/api/runs").json()["runs"]
    assert [(run["place"], run["name"], run["steps"]) for run in found] == [
        ("b", "b", 1),
        ("a", "a", 2),
    ]
    assert found[0]["curve"] == [[1, 0.4, 0.3, 0.5]]
    assert found[0]["state"] == "stopped"
    (tmp_path / "b" / "summary.json").write_text("{}")
    assert asks.get("/api/runs/b").json()["state"] == "finished"


def test_a_name_that_two_runs_share_has_a_suffix_that_stays(tmp_path: Path) -> None:
    for place in ("one", "other"):
        write_run(tmp_path / place / "lake", {1: named(place)})
    write_run(tmp_path / "one" / "läufe~..", {1: named("third")})

    def places(*folders: str) -> dict[str, str]:
        told = client(*(tmp_path / each for each in folders)).get("/api/runs").json()["runs"]
        return {run["folder"]: run["place"] for run in told}

    both = places("one", "other")
    lake, strange, other = both.values()
    assert both == places("other", "one")
    assert lake != other
    assert all(re.fullmatch(rf"(?!\.+$){PLACE}", place) for place in both.values())
    asks = client(tmp_path / "one", tmp_path / "other")
    for place, ids in ((lake, ["one"]), (other, ["other"]), (strange, ["third"])):
        found = asks.get(f"/api/runs/{place}/rollouts").json()["rows"]
        assert [row["id"] for row in found] == ids
    assert asks.get("/api/runs/lake").status_code == 404  # which one is not said
    alone = client(tmp_path / "one")
    for place in ("lake", lake):  # a name that no other has needs no suffix, and takes it
        assert alone.get(f"/api/runs/{place}").json()["name"] == "lake"
    assert alone.get(f"/api/runs/{other}").status_code == 404


def test_an_address_finds_a_run_that_came_since(tmp_path: Path) -> None:
    asks = client(write_run(tmp_path / "runs" / "a").parent)
    assert asks.get("/api/runs/b").status_code == 404
    write_run(tmp_path / "runs" / "b")
    assert asks.get("/api/runs/b").json()["place"] == "b"


@pytest.mark.parametrize(
    "place", ["2", "-1", "..", "%2e%2e%2fetc", "9" * 100, "b~00000000", "b~", "~", "%2fb", "b%00", "B"]
)
def test_a_run_is_no_path(tmp_path: Path, place: str) -> None:
    write_run(tmp_path / "b")
    for what in ("", "/rollouts", "/metrics", "/grid", "/events"):
        assert client(tmp_path).get(f"/api/runs/{place}{what}").status_code in (404, 422)


def test_a_place_that_is_nothing_is_refused() -> None:
    with pytest.raises(RecordError, match="neither a run nor a folder"):
        Catalog(["no/such/folder"])


def test_an_empty_folder_says_where_it_looked(tmp_path: Path) -> None:
    found = client(tmp_path).get("/api/runs").json()
    assert (found["runs"], found["places"]) == ([], str(tmp_path))


def test_rows_are_those_of_replay_list(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", {step: named(f"{step}-a", f"{step}-b") for step in (1, 2, 3)})
    found = client(run).get("/api/runs/run/rollouts").json()
    own = {"outcome", "kind", "name"}
    served = [{name: value for name, value in row.items() if name not in own} for row in found["rows"]]
    assert served == json.loads(json.dumps([fields_of(*each) for each in rows(str(run))]))
    assert (found["total"], found["fitting"], found["next"], found["left"]) == (6, 6, None, 0)


def test_rows_come_in_windows_filtered_and_sorted(tmp_path: Path) -> None:
    solved, lost = (
        replace(plain(), id=name, passed=passed, policy_step=step)
        for name, passed, step in (("yes", True, 1), ("no", False, 2))
    )
    run = write_run(tmp_path / "run", {1: [solved], 2: [lost, replace(lost, id="odd", task_id="other/1")]})
    asks = client(run)

    def ids(**asked: object) -> list[str]:
        return [row["id"] for row in asks.get("/api/runs/run/rollouts", params=asked).json()["rows"]]  # type: ignore[arg-type]

    assert ids(start=1, limit=1) == ["no"]
    assert ids(sort="newest") == ["odd", "no", "yes"]
    assert ids(outcome="failed") == ["no", "odd"]
    assert ids(task="other/*") == ["odd"]
    assert ids(step=1) == ["yes"]
    assert ids(file="step-000002") == ["no", "odd"]
    assert ids(text="no such text anywhere") == []
    assert ids(text=plain().actions[0]) == ["yes", "no", "odd"]
    for bad in (
        {"limit": 0},
        {"limit": 10_000},
        {"start": -1},
        {"outcome": "x"},
        {"task": "*" * 201},
        {"step": "a"},
    ):
        assert asks.get("/api/runs/run/rollouts", params=bad).status_code == 422


def test_a_search_goes_on_where_it_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ale.console.rollouts.MOST_READ", 2)
    run = write_run(tmp_path / "run", {1: named(*"abcde")})
    found, start = [], 0
    while start is not None:
        asked = {"text": plain().actions[0], "start": start}
        answer = client(run).get("/api/runs/run/rollouts", params=asked).json()
        found += [row["id"] for row in answer["rows"]]
        start = answer["next"]
    assert found == list("abcde")


def test_a_rollout_is_what_replay_show_prints(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", {1: named("first", "second")})
    asks = client(run)
    whole = asks.get("/api/runs/run/rollout", params={"id": "second"}).json()
    pieces = [
        part
        for start in range(whole["of"])
        for part in asks.get(
            "/api/runs/run/rollout", params={"id": "second", "start": start, "limit": 1}
        ).json()["parts"]
    ]
    assert pieces == whole["parts"]
    printed = [
        visible(line)
        for line in transcript(named("second")[0], tokens=False, why_anew=why_contexts_begin_anew(str(run)))
    ]
    assert [line for part in pieces for line in lines_of(part["kind"], part["text"])] == printed
    for told, turn in zip(whole["turns"], plain().turns, strict=True):
        assert told["ids"] == turn.completion_ids.tolist()
        assert len(told["logprobs"]) == len(told["ids"]) == sum(count for _, count in told["versions"])
    assert whole["near"]["previous"] == "first"
    assert asks.get("/api/runs/run/rollout", params={"id": "third"}).status_code == 404


def test_a_long_text_is_cut_until_it_is_asked_for(tmp_path: Path) -> None:
    long = replace(plain(), grader_output="x" * 1_000_000)
    asks = client(write_run(tmp_path / "run", {1: [long]}))
    told = asks.get("/api/runs/run/rollout", params={"id": long.id}).json()["parts"]
    number = next(at for at, part in enumerate(told) if part["kind"] == "graded")
    assert (len(told[number]["text"]), told[number]["chars"]) == (20_000, 1_000_000)
    asked = {"id": long.id, "start": number, "limit": 1, "whole": number}
    assert len(asks.get("/api/runs/run/rollout", params=asked).json()["parts"][0]["text"]) == 1_000_000


def test_the_grid_counts_what_passed_among_what_was_graded(tmp_path: Path) -> None:
    solved, lost = replace(plain(), id="yes", passed=True), replace(plain(), id="no", passed=False)
    found = client(write_run(tmp_path / "run", {1: [solved, lost]})).get("/api/runs/run/grid").json()
    [(_, task, [cell])] = found["step"]["tasks"]
    assert (task, cell) == (plain().task_id, [1, 2])


def test_metrics_are_columns_with_gaps(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run")
    lines = [
        {"step": 1, "kind": "train", "a": 1},
        {"step": 2, "kind": "train", "b": float("nan")},
        {"step": 3, "kind": "train", "a": 3, "b": 2},
    ]
    (run / "metrics.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    found = client(run).get("/api/runs/run/metrics", params={"names": "a,b,none"}).json()
    assert found["series"]["train"] == {
        "step": [1, 2, 3],
        "values": {"a": [1, None, 3], "b": [None, None, 2]},
    }
    assert client(run).get("/api/runs/run/metrics", params={"names": "a", "points": 2}).json()["series"][
        "train"
    ]["step"] == [1, 3]


def test_metrics_grow_tear_and_are_cut_back(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run")
    write_metrics(run, 2)
    asks = client(run)

    def steps() -> list[int]:
        return asks.get("/api/runs/run/metrics").json()["series"]["train"]["step"]  # type: ignore[no-any-return]

    assert steps() == [1, 2]
    with (run / "metrics.jsonl").open("a") as file:
        file.write('{"step": 3, "kind": "tra')
        file.flush()
        assert steps() == [1, 2]
        file.write('in", "success": 1}\n')
    assert steps() == [1, 2, 3]
    beside = run / "beside"
    beside.write_text('{"step": 1, "kind": "train"}\n')  # as a resumed run leaves it
    beside.replace(run / "metrics.jsonl")
    assert steps() == [1]
    (run / "metrics.jsonl").unlink()
    assert asks.get("/api/runs/run/metrics").json()["series"] == {}


def test_damaged_metrics_are_told_and_the_rest_is_shown(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run")
    (run / "metrics.jsonl").write_text(
        '{"step": 1, "kind": "train"}\nnot JSON\n[]\n{"step": 4, "kind": "train"}\n'
    )
    found = client(run).get("/api/runs/run/metrics").json()
    assert found["series"]["train"]["step"] == [1, 4]
    assert "line 2 is not JSON" in found["problem"]
    assert "line 2" in client(tmp_path).get("/api/runs").json()["runs"][0]["problem"]


@pytest.mark.parametrize("settings", ["steps = ", "steps = 'many'\n", "\x00", "[" * 5000])
def test_damaged_settings_are_told(tmp_path: Path, settings: str) -> None:
    run = write_run(tmp_path / "run", {1: named("one")})
    (run / "config.toml").write_text(settings)
    asks = client(run)
    assert asks.get("/api/runs/run").json()["problem"]
    assert len(asks.get("/api/runs/run/rollouts").json()["rows"]) == 1


def test_damaged_rollouts_are_told_and_intact_ones_listed(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", {1: named("a", "b"), 2: named("c")})
    path = segment_path(run, "step", 1)
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 0xFF
    path.write_bytes(content)
    found = client(run).get("/api/runs/run/rollouts").json()
    assert found["damaged"] >= 1
    assert "c" in [row["id"] for row in found["rows"]]
    path.write_bytes(b"")
    assert client(run).get("/api/runs/run/rollouts").json()["damaged"] == 1


def test_a_record_that_is_gone_is_an_answer(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", {1: named("a")})
    watched = WatchedRun(run)
    assert len(watched.rows().all) == 1
    segment_path(run, "step", 1).unlink()
    assert list(watched.rows().all) == []
    asks = client(run)
    assert asks.get("/api/runs/run/rollout", params={"id": "a"}).status_code == 404


def test_a_file_is_read_once_and_new_ones_are_added(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = write_run(tmp_path / "run", {1: named("a")})
    watched, read = WatchedRun(run), []

    def counted(path: Path) -> object:
        read.append(path.name)
        return rows_of_file(path)

    monkeypatch.setattr("ale.console.run.rows_of_file", counted)
    watched.rows()
    before = watched.stamp()
    write_segment(segment_path(run, "step", 2), named("b"))
    assert watched.stamp() != before
    assert [row.id for _, row in watched.rows().all] == ["a", "b"]
    assert read == ["step-000001.rollouts", "step-000002.rollouts"]


def test_an_answer_s_rows_stay_what_they_were(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", {2: named("b")})
    watched = WatchedRun(run)
    rows = watched.rows()
    at = rows.find("b")
    write_segment(segment_path(run, "step", 1), named("a"))
    assert [row.id for _, row in watched.rows().all] == ["a", "b"]
    assert at is not None
    assert rows.all[at][1].id == "b"


def test_kinds_without_end_are_kept_within_a_bound(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run")
    lines = [{"step": 1, "kind": f"kind {number}", "x": 1.0} for number in range(500)]
    (run / "metrics.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    found = WatchedRun(run).metrics((), 2)
    assert (len(found["names"]), found["left_out"]) == (64, 436)


async def test_an_account_ends_with_who_asked_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    ended = asyncio.Event()

    async def endless() -> tuple[None, str]:
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()
        return None, ""

    async def leaves() -> dict[str, str]:
        await asyncio.sleep(0)
        return {"type": "http.disconnect"}

    request = Request({"type": "http"}, leaves)
    assert await console_app._while_asked(request, endless()) == (None, "nobody waits for it")
    assert ended.is_set()


async def test_what_is_no_account_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    program, python = tmp_path / "program", sys.executable
    for said, told in (
        ("print('a plugin speaks'); print('[]')", "printed no account"),
        ("print('[1]')", "printed no account"),
        ("import sys; sys.exit('it failed')", "it failed"),
    ):
        program.write_text(f"#!{python}\n{said}\n")
        program.chmod(0o755)
        monkeypatch.setattr("ale.console.app.sys.executable", str(program))
        found, why = await console_app._tokens("run", "id")
        assert found is None
        assert told in why


def test_many_files_are_read_over_several_answers(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", {step: named(f"{step}") for step in range(1, 6)})
    watched = WatchedRun(run)
    assert watched.rows(patience_s=-1).left == 5
    assert len(watched.rows(patience_s=60).all) == 5


async def test_a_page_hears_of_a_step_that_was_written(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", {1: named("a")})
    watched = WatchedRun(run)
    events = changes(lambda: asyncio.to_thread(watched.stamp), asyncio.Semaphore(1), LOOKS_S)
    assert await anext(events) == "data: changed\n\n"
    waits = asyncio.ensure_future(anext(events))
    await asyncio.sleep(0)
    assert not waits.done()
    write_segment(segment_path(run, "step", 2), named("b"))
    assert await waits == "data: changed\n\n"
    await events.aclose()


def test_two_rollouts_part_where_replay_diff_says(tmp_path: Path) -> None:
    one = plain()
    other = replace(one, id="other", actions=("else", *one.actions[1:]))
    asks = client(write_run(tmp_path / "run", {1: [one, other]}))
    asked = {"one": "run", "first": one.id, "other": "run", "second": "other"}
    assert asks.get("/api/pair", params=asked).json() == {
        "where": "turn 0: action",
        "turn": 0,
        "first": one.actions[0],
        "second": "else",
    }
    assert asks.get("/api/pair", params={**asked, "second": one.id}).json()["where"] is None


def test_runs_are_compared_by_settings_and_where_they_part(tmp_path: Path) -> None:
    write_run(tmp_path / "a", {3: named("x")})
    write_run(tmp_path / "b", {3: named("x")})
    (tmp_path / "b" / "config.toml").write_text('env = "frozen_lake"\nalgo = "grpo"\nseed = 3\nsteps = 9\n')
    lines = (tmp_path / "b" / "metrics.jsonl").read_text().replace('"success": 0.2', '"success": 0.9')
    (tmp_path / "b" / "metrics.jsonl").write_text(lines)
    found = client(tmp_path).get("/api/compare", params={"runs": "a,b"}).json()
    assert found["settings"] == {"algo": ["ipa", "grpo"]}
    assert found["parting"] == {"step": 2, "name": "success"}


def test_times_part_no_runs() -> None:
    one, other = Columns(), Columns()
    for columns, took in ((one, 1.0), (other, 2.0)):
        columns.add(
            {
                "step": 1,
                "kind": "train",
                "learn_s": took,
                "turns_per_s": took,
                "time/idle": took,
                "loss": 0.5,
                "gap": float("nan"),
            }
        )
    assert parting(one, other) is None


def test_the_console_changes_no_file_of_a_run(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", {1: named("a")})

    def state() -> dict[str, int]:
        return {
            str(path): path.stat().st_mtime_ns
            for path in run.rglob("*")
            if path.is_file() and ".index" not in path.parts
        }

    before = state()
    asks = client(tmp_path)
    for what in ("", "/run", "/run/rollouts", "/run/grid", "/run/metrics", "/run/rollout?id=a"):
        assert asks.get(f"/api/runs{what}").status_code == 200
    assert state() == before
    assert any((run / "trajectories" / ".index").iterdir())  # what `ale replay list` keeps, too
