"""`ale console RUN --bundle FILE.html`: one file with what the console shows, without secrets, in which no content runs."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import tempfile
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from console_run import client, named, plain, write_run
from test_console_hostile import HOSTILE

from ale.console import bundle
from ale.console.bundle import write_bundle
from ale.errors import RecordError

KEY = "sk-" + "a1B2" * 8


class Page(HTMLParser):
    """What a browser takes for elements: their names, and the text of scripts and styles."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.texts: list[tuple[str, dict[str, str | None], str]] = []
        self._open: tuple[str, dict[str, str | None]] | None = None
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self._open = (tag, dict(attrs)) if tag in ("script", "style", "meta") else None
        if tag == "meta":
            self.texts.append((tag, dict(attrs), ""))

    def handle_data(self, data: str) -> None:
        if self._open and self._open[0] != "meta":
            self.texts.append((*self._open, data))

    def handle_endtag(self, tag: str) -> None:
        self._open = None

    def held(self) -> Any:
        (text,) = (text for _, attributes, text in self.texts if attributes.get("id") == "kept")
        return json.loads(text)


def bundled(run: Path, *chosen: str) -> str:
    out = run.parent / "out.html"
    out.unlink(missing_ok=True)
    write_bundle(str(run), out, chosen)
    return out.read_text(encoding="utf-8")


def test_it_holds_what_the_console_answers(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", {1: named("a", "b"), 2: named("c")})
    held = Page(bundled(run)).held()
    served = client(run)
    served.get("/api/runs")
    for name in ("a", "b", "c"):
        answer = served.get("/api/runs/run/rollout", params={"id": name}).json()
        (own,) = (each for each in held["rollouts"] if each["row"]["id"] == name)
        assert own == {**answer, "goes_on": ""}
    names = [name for each in held["metrics"]["names"].values() for name in each]
    assert held["metrics"] == served.get("/api/runs/run/metrics", params={"names": ",".join(names)}).json()
    assert held["grid"] == served.get("/api/runs/run/grid").json()
    assert held["rows"] == served.get("/api/runs/run/rollouts").json()["rows"]
    assert tempfile.gettempdir() not in json.dumps(held)


def test_no_content_ends_a_script_or_adds_an_element(tmp_path: Path) -> None:
    tame = Page(bundled(write_run(tmp_path / "tame", {1: named("a")}))).tags
    rollouts = [
        replace(
            plain(), id=f"{number}", grader_output=text, task_id=text, actions=(text,) * len(plain().turns)
        )
        for number, text in enumerate(HOSTILE.values())
    ]
    page = Page(bundled(write_run(tmp_path / "<script>alert(1)</script><!--", {1: rollouts})))
    assert page.tags == tame
    assert len(page.held()["rollouts"]) == len(HOSTILE)


def test_its_policy_lets_its_own_scripts_run_and_no_other(tmp_path: Path) -> None:
    page = Page(bundled(write_run(tmp_path / "run", {1: named("a")})))
    (policy,) = (each["content"] for _, each, _ in page.texts if each.get("http-equiv"))
    assert policy
    assert "'unsafe" not in policy
    assert policy.startswith("default-src 'none'")
    for tag, attributes, text in page.texts:
        if tag in ("script", "style") and attributes.get("type") != "application/json":
            told = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
            assert f"'sha256-{told}'" in policy
    (imports,) = (text for _, attributes, text in page.texts if attributes.get("type") == "importmap")
    for name, address in json.loads(imports)["imports"].items():
        text = base64.b64decode(address.partition("base64,")[2]).decode()
        assert not re.search(r'from "\./', text), f"{name} imports by a path, which a data: address has not"


def test_secrets_stay_at_home(tmp_path: Path) -> None:
    told = replace(plain(), id="told", grader_output=f"expected {KEY}", actions=(KEY,) * len(plain().turns))
    run = write_run(tmp_path / "run", {1: [told, *named("other")]})
    (run / "config.toml").write_text(f'env = "frozen_lake"\nmodel = "https://user:{KEY}@host/model"\n')
    assert write_bundle(str(run), tmp_path / "out.html", ()) == (2, 1)
    assert KEY not in (tmp_path / "out.html").read_text(encoding="utf-8")


def test_chosen_rollouts_alone_are_held(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", {1: named("a", "b"), 2: named("c")})

    def ids(*chosen: str) -> list[str]:
        return [each["row"]["id"] for each in Page(bundled(run, *chosen)).held()["rollouts"]]

    assert ids("a", "c") == ["a", "c"]
    assert ids("file=*2") == ["c"]
    assert ids("a", "c", "file=*1") == ["a"]


@pytest.mark.parametrize(
    ("chosen", "said"),
    [
        (["nobody"], "has no rollout 'nobody': expected an id"),
        (["folder=x"], "--rollouts takes an id or KEY=VALUE: got 'folder=x'"),
        (["step=-1"], "got 'step=-1'"),
        (["outcome=good"], "outcome=passed|unsolved|errored|ungraded"),
        (["task=none/*"], "no rollout of .* fits --rollouts task=none"),
    ],
)
def test_a_choice_that_means_nothing_is_refused(tmp_path: Path, chosen: list[str], said: str) -> None:
    run = write_run(tmp_path / "run", {1: named("a")})
    with pytest.raises(RecordError, match=said.replace("|", r"\|")):
        write_bundle(str(run), tmp_path / "out.html", chosen)
    assert not (tmp_path / "out.html").exists()


def test_what_a_browser_could_not_read_at_once_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = write_run(tmp_path / "run", {1: named("a", "b")})
    monkeypatch.setattr(bundle, "MOST_ROLLOUTS", 1)
    with pytest.raises(RecordError, match=r"at most 1 rollouts: got 2 of 2\. Choose fewer by --rollouts"):
        write_bundle(str(run), tmp_path / "out.html", ())
    monkeypatch.setattr(bundle, "MOST_BYTES", 1000)
    with pytest.raises(RecordError, match=r"expected at most 0\. Choose fewer rollouts"):
        write_bundle(str(run), tmp_path / "out.html", ["a"])
    (tmp_path / "there.html").touch()
    with pytest.raises(RecordError, match="is there already"):
        write_bundle(str(run), tmp_path / "there.html", ["a"])
    with pytest.raises(RecordError, match="no run in"):
        write_bundle(str(tmp_path / "nothing"), tmp_path / "out.html", ())
