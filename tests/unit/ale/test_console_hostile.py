"""What a rollout, a task or a folder may hold to harm who looks at it arrives as text, as `ale replay show` prints it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from console_run import client, plain, write_run
from starlette.testclient import TestClient

from agent_runtime.store import segment_path, write_segment
from agent_runtime.types import RolloutFailure, StopReason, Trajectory
from ale.console import run as run_module
from ale.console.catalog import place_of
from ale.replay.showing import lines_of, transcript
from rock_env.telemetry.shown import visible

HOSTILE = {
    "script": "<script>alert(1)</script>",
    "script of another case": "<ScRiPt >alert(1)</sCrIpT>",
    "end of a script": "</script><script>alert(1)</script>",
    "image": "<img src=x onerror=alert(1)>",
    "svg": "<svg xmlns='http://www.w3.org/2000/svg' onload=alert(1)><script>alert(1)</script></svg>",
    "svg foreign": "<svg><foreignObject><iframe src=javascript:alert(1)></foreignObject></svg>",
    "math": "<math><mtext><style><img src=x onerror=alert(1)></style></mtext></math>",
    "iframe": "<iframe srcdoc='<script>alert(1)</script>'></iframe>",
    "frame of a file": "<iframe src=file:///etc/passwd>",
    "form": "<form action=//evil.example><input name=x autofocus onfocus=alert(1)>",
    "base": "<base href=//evil.example/>",
    "meta": "<meta http-equiv=refresh content='0;url=//evil.example'>",
    "link": "<link rel=stylesheet href=//evil.example/x.css>",
    "style": "<style>body{display:none}</style>",
    "anchor": "<a href='javascript:alert(1)'>x</a>",
    "address": "javascript:alert(1)",
    "data address": "data:text/html,<script>alert(1)</script>",
    "data address of a picture": "data:image/svg+xml,<svg xmlns='http://www.w3.org/2000/svg' onload='alert(1)'/>",
    "data address in base 64": "data:text/html;base64,PHNjcmlwdD5hbGVydCgxKTwvc2NyaXB0Pg==",
    "picture of markdown": "![x](data:image/png;base64,AAAA) [x](javascript:alert(1))",
    "address of a file": "blob:http://127.0.0.1:8399/x filesystem:http://127.0.0.1/x",
    "page of choices": "Instruction: <b>x</b>\n[<img src=x onerror=alert(1)>] (<script>alert(1)</script>)",
    "diff of a script": "@@ -1 +1 @@\n-<script>alert(1)</script>\n+<img src=x onerror=alert(1)>",
    "markers of an edit": "<<<<<<<\n=======\n>>>>>>>\n" * 50,
    "deep json": "[" * 50_000,
    "deep objects": '{"a":' * 20_000,
    "attribute": '" onmouseover="alert(1)',
    "single quote": "' onclick='alert(1)",
    "comment": "<!--<script>-->",
    "cdata": "<![CDATA[<script>alert(1)</script>]]>",
    "entity": "&lt;script&gt;&#x3c;script&#x3e;",
    "template": "${alert(1)} {{constructor.constructor('alert(1)')()}} <%= 1 %>",
    "json": '"}],"problem":"","x":[{"a":"',
    "json of a prototype": '{"__proto__":{"polluted":1},"constructor":{"prototype":{}}}',
    "callback": "*/;alert(1);/*",
    "event stream": "\n\ndata: forged\n\nevent: x\n",
    "header": "\r\nSet-Cookie: x=1\r\n\r\n<html>",
    "ansi colour": "\x1b[31mred\x1b[0m \x1b[8mhidden",
    "ansi of a title": "\x1b]0;title\x07\x1b]8;;http://evil.example\x07link\x1b]8;;\x07",
    "ansi of a screen": "\x1b[2J\x1b[H\x1bc\x9b2J",
    "carriage return": "harmless\rharmful",
    "backspace": "safe\b\b\b\bevil",
    "nul": "a\x00b",
    "controls": "".join(map(chr, range(32))) + "\x7f" + "".join(map(chr, range(0x80, 0xA0))),
    "bidi override": "\u202egnp.exe\u202c",
    "bidi isolate": "\u2066\u2067\u2068x\u2069",
    "bidi marks": "\u200e\u200f\u061c",
    "zero width": "a\u200bb\u200cc\u200dd\ufeffe\u2060",
    "tags": "".join(chr(0xE0000 + ord(mark)) for mark in "ignore"),
    "line separators": "a\u2028b\u2029c\x85d\x0be\x0c",
    "combining": "z" + "\u0301" * 5000,
    "not a character": "\ufffe\uffff\U0010ffff",
    "private use": "\ue000\U000f0000",
    "long line": "x" * 200_000,
    "many lines": "\n" * 50_000,
    "path": "../../../../etc/passwd",
    "home": "~root/.ssh/id_rsa",
    "shell": "'; rm -rf ~ #`id`$(id)|id&&id",
    "option": "--help",
    "percent": "%2e%2e%2f%00%0d%0a",
    "pattern": "[!*?]" * 20,
    "number": "NaN",
    "empty": "",
}


def carrying(text: str) -> Trajectory:
    """Return a rollout that holds a text wherever somebody else's words stand."""
    whole = plain()
    turns = len(whole.turns)
    return replace(
        whole,
        id=f"id {text}"[:400],
        task_id=text,
        env=f"frozen_lake{text}",
        group_id=text,
        params_json=text,
        first_observation=text,
        actions=(text,) * turns,
        observations=(text,) * turns,
        grader_output=text,
        artifacts=tuple(replace(each, name=text, media_type=text) for each in whole.artifacts),
        reward_source=None
        if whole.reward_source is None
        else replace(whole.reward_source, raw=text, worker=text),
    )


def test_the_catalogue_is_large() -> None:
    assert len(HOSTILE) >= 40


@pytest.fixture(scope="module")
def asks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    """Ask a console over one run that holds the whole catalogue, and over runs that are called so."""
    folder = tmp_path_factory.mktemp("runs")
    write_run(folder / "run", {1: map(carrying, HOSTILE.values())})
    for text in HOSTILE.values():
        write_run(folder / name_of(text), {1: [plain()]})
    with client(folder) as found:
        yield found


def name_of(text: str) -> str:
    return f"r{text}".replace("/", "_").replace("\x00", "")[:60]


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
def test_what_a_rollout_holds_arrives_as_text(asks: TestClient, text: str) -> None:
    rollout = carrying(text)
    asked = {"id": rollout.id, "limit": 1000}
    whole = asks.get("/api/runs/run/rollout", params=asked)
    assert whole.headers["content-type"] == "application/json"
    assert whole.content.isascii()
    assert not any(byte < 0x20 or byte == 0x7F for byte in whole.content)
    found = whole.json()
    for number, part in enumerate(found["parts"]):
        if part["chars"] > len(part["text"]):
            one = {"id": rollout.id, "start": number, "limit": 1, "whole": number}
            found["parts"][number] = asks.get("/api/runs/run/rollout", params=one).json()["parts"][0]
    printed = [visible(line) for line in transcript(rollout, tokens=False)]
    served = [line for part in found["parts"] for line in lines_of(part["kind"], part["text"])]
    if (
        "\r" not in text and "\x1c" not in text and "\u2028" not in text
    ):  # marks that split lines are written out as marks
        assert served == printed
    assert all(visible(part["text"]) == part["text"] for part in found["parts"])
    assert found["goes_on"] == "" or found["goes_on"].isprintable()
    row = found["row"]
    assert row["id"] == rollout.id  # the address of it; `name` is shown
    for name in ("name", "task", "env", "group", "end", "file"):
        assert visible(row[name]) == row[name]
    assert asks.get("/api/runs/run/rollouts", params={"text": text[:200]}).status_code == 200
    assert asks.get("/api/runs/run/rollouts", params={"task": text[:200] or "*"}).status_code == 200


def test_tasks_and_runs_are_named_visibly(asks: TestClient) -> None:
    listed = asks.get("/api/runs/run/rollouts", params={"limit": 500}).json()["rows"]
    assert [row["task"] for row in listed] == list(map(visible, HOSTILE.values()))
    tasks = {line[1] for line in asks.get("/api/runs/run/grid").json()["step"]["tasks"]}
    assert tasks == set(map(visible, HOSTILE.values()))
    answer = asks.get("/api/runs")
    assert answer.content.isascii()
    runs = answer.json()["runs"]
    assert {run["name"] for run in runs} == {"run", *(visible(name_of(text)) for text in HOSTILE.values())}
    for run in runs:
        assert asks.get(f"/api/runs/{run['place']}").json()["name"] == run["name"]


def test_a_name_that_is_no_text_is_listed(tmp_path: Path) -> None:
    name = b"run-\xff\xfe".decode(errors="surrogateescape")
    try:
        write_run(tmp_path / name, {1: [plain()]})
    except OSError:
        pytest.skip("this file system takes names of text only")
    [run] = client(tmp_path).get("/api/runs").json()["runs"]
    assert run["name"] == visible(name)


def test_hostile_settings_and_metrics_are_text(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", {1: [plain()]})
    (run / "config.toml").write_text(f"env = {json.dumps(HOSTILE['svg'])}\nalgo = [1]\nseed = 1\nsteps = 2\n")
    lines = [
        {
            "step": 1,
            "kind": "<script>",
            HOSTILE["image"]: 1e400,
            "nested": {"a": [1]},
            "text": "x",
            "yes": True,
        },
        {"step": -(1 << 60), "kind": "train", "loss": -1e308},
        {"step": 1 << 70, "kind": "train"},
        {"step": 2, "kind": "train", "loss": 1, "huge": 10**400},
        {"step": 3, "kind": "train", "loss": 2},
    ]
    (run / "metrics.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    found = client(run).get("/api/runs/run/metrics", params={"names": f"loss,{HOSTILE['image']}"}).json()
    assert found["series"]["train"]["values"]["loss"][-1] == 2
    assert found["problem"]
    assert client(run).get("/api/runs/run").json()["settings"]["env"] == HOSTILE["svg"]


def test_a_failure_has_no_reward(tmp_path: Path) -> None:
    failed = replace(
        plain(), reward=float("nan"), passed=False, stop_reason=StopReason.FAILED,
        failure=RolloutFailure("env_lost", HOSTILE["svg"], 0),
    )  # fmt: skip
    asks = client(write_run(tmp_path / "run", {1: [failed]}))
    [row] = asks.get("/api/runs/run/rollouts", params={"outcome": "errored"}).json()["rows"]
    assert (row["reward"], row["outcome"]) == (None, "errored")
    assert asks.get("/api/runs/run/grid").json()["step"]["tasks"][0][2] == [[0, 0]]


def test_files_with_hostile_names_are_listed_by_them(tmp_path: Path) -> None:
    named = {f"{name_of(text)}.rollouts" for text in HOSTILE.values()}
    for name in named:
        write_segment(segment_path(tmp_path, "step", 1).with_name(name), [plain()])
    asks, asked = client(tmp_path), {"limit": 500}
    while (answer := asks.get(f"/api/runs/{place_of(tmp_path)}/rollouts", params=asked)).json()["left"]:
        pass  # a busy machine reads them over several answers
    assert answer.content.isascii()
    assert {row["file"] for row in answer.json()["rows"]} == set(map(visible, named))


def test_a_turn_of_100_000_tokens_is_an_answer(tmp_path: Path) -> None:
    whole = plain()
    count = 100_000
    long = replace(
        whole.turns[0],
        completion_ids=np.arange(count, dtype=np.int32),
        logprobs=np.full(count, -0.5, dtype=np.float32),
        policy_version=1,
    )
    rollout = replace(whole, id="long", turns=(long, *whole.turns[1:]))
    asks = client(write_run(tmp_path / "run", {1: [rollout]}))
    turn = asks.get("/api/runs/run/rollout", params={"id": "long"}).json()["turns"][0]
    assert (len(turn["ids"]), len(turn["logprobs"]), turn["versions"]) == (count, count, [[1, count]])


def test_an_observation_of_50_mb_comes_cut(tmp_path: Path) -> None:
    size = 50_000_000
    whole = plain()
    seen = "\u202e" + "[x] <b>\n" * (size // 8)
    rollout = replace(whole, id="large", first_observation=seen, env="webshop@1")
    asks = client(write_run(tmp_path / "run", {1: [rollout]}))
    answer = asks.get("/api/runs/run/rollout", params={"id": "large"})
    assert len(answer.content) < 1_000_000
    [part] = [each for each in answer.json()["parts"] if each["chars"] > size]
    assert part["chars"] - len(part["text"]) == len(seen) - 20_000
    assert part["text"].startswith("\\u202e[x] <b>")
    assert asks.get("/api/runs/run/rollouts", params={"text": "no such text"}).json()["rows"] == []


def test_deep_json_in_settings_and_metrics_is_told(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", {1: [plain()]})
    (run / "config.toml").write_text("env = " + "[" * 5000 + "]" * 5000 + "\n")
    (run / "metrics.jsonl").write_text('{"step": 1, "kind": "train", "loss": ' + "[" * 100_000 + "\n")
    asks = client(run)
    assert asks.get("/api/runs/run").json()["problem"]
    assert asks.get("/api/runs/run/metrics", params={"names": "loss"}).json()["problem"]


def test_a_link_in_place_of_records_is_not_followed_to_a_device(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run")
    (run / "metrics.jsonl").unlink()
    (run / "metrics.jsonl").symlink_to("/dev/zero")
    (run / "trajectories").mkdir()
    (run / "trajectories" / "step-000001.rollouts").symlink_to("/dev/zero")
    asks = client(tmp_path)
    assert asks.get("/api/runs").json()["runs"][0]["problem"]
    assert asks.get("/api/runs/run/rollouts").json()["damaged"] == 1


def test_few_bytes_of_metrics_are_no_many_numbers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_module, "_MOST_NUMBERS", 10_000)
    run = write_run(tmp_path / "run", {1: [plain()]})
    wide = {f"name{number}": number for number in range(1000)}
    lines = [
        {"step": 1, "kind": "train", **wide},
        *({"step": step, "kind": "train"} for step in range(2, 100)),
    ]
    (run / "metrics.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    found = client(run).get("/api/runs/run/metrics", params={"names": "name7"}).json()
    assert "line 10: the console keeps 10,000 numbers of a run" in found["problem"]
    assert found["series"]["train"]["step"] == list(range(1, 10))
