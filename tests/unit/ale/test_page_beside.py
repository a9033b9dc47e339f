"""`ale train --console`: a page beside the run that ends with it, and that the run neither waits for nor fails by."""

from __future__ import annotations

import socket
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from queue import Queue

import httpx
import pytest
from console_run import named, write_run

from ale.watching import page as page_module
from ale.watching.page import Page


def test_it_opens_on_the_run_once_that_is_there_and_ends_with_it(tmp_path: Path) -> None:
    said: Queue[str] = Queue()
    with Page(tmp_path / "lake", said.put, port=0) as page:
        write_run(tmp_path / "lake", {1: named("one")})
        told = said.get()
        address, _, place = told.removeprefix("console: ").partition("/#/run/")
        assert httpx.get(f"{address}/api/runs/{place}").json()["name"] == "lake"
        assert [run["name"] for run in httpx.get(f"{address}/api/runs").json()["runs"]] == ["lake"]
    assert page._process is not None
    assert page._process.returncode is not None
    with pytest.raises(httpx.ConnectError):
        httpx.get(address)
    assert said.empty()


def test_an_open_page_does_not_hold_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        page_module, "_ENDS_S", 250.0
    )  # a busy machine; a stream that held it would hold it for good
    said: Queue[str] = Queue()
    with Page(write_run(tmp_path / "lake"), said.put, port=0) as page:
        address, _, place = said.get().removeprefix("console: ").partition("/#/run/")
        streamed = httpx.stream("GET", f"{address}/api/runs/{place}/events", timeout=250)
        with streamed as answer, suppress(httpx.HTTPError):
            assert next(answer.iter_lines()) == "data: changed"
            page.__exit__()
    assert page._process is not None
    assert page._process.returncode == 0


def test_a_port_that_is_taken_is_said_and_nothing_else(tmp_path: Path) -> None:
    said: Queue[str] = Queue()
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with Page(write_run(tmp_path / "lake"), said.put, port=port):
            told = said.get()
    assert f"note: no console: cannot listen on 127.0.0.1:{port}" in told
    assert "The run goes on" in told


def test_a_run_that_never_begins_has_none(tmp_path: Path) -> None:
    said: Queue[str] = Queue()
    with Page(tmp_path / "none", said.put, port=0) as page:
        pass
    assert page._process is None
    assert said.empty()


def test_it_ends_with_a_run_that_is_killed(tmp_path: Path) -> None:
    run = write_run(tmp_path / "lake")
    words = [sys.executable, "-m", "ale.console.beside", str(run), "0"]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        assert process.stdout.readline().endswith("/#/run/lake\n")
        process.stdin.close()  # as the death of the run closes it
        assert process.wait() == 0
