"""Which changes of an agent's are work, and which could steer its grade."""

from __future__ import annotations

from typing import Any

import pytest

from rock_env.guest.steering import REFUSED, Change, Steering, without_pytest

STEERING = Steering(
    runs=frozenset({"curl"}),
    asked=frozenset(
        {
            "report",
            "/usr/local/bin/report",
            "queue.py",
            "conftest.txt",
            "python3",
            "/usr/bin/python3",
            "diff",
            "jq",
            "cmp",
            "/usr/local/bin/cmp",
        }
    ),
    workdir="app",
    programs=frozenset({"python3", "sh", "report", "diff", "jq", "cmp"}),
    named=frozenset({"diff", "cmp"}),
    libraries=frozenset({"libz.so.1"}),
)


def judged(path: str, was: Any = "nothing", now: Any = "other", **more: Any) -> Any:
    content = more.pop("content", b"")
    known = more.pop("known", None)
    return STEERING.judge(Change(path, was, now, **more), lambda: content, lambda: known)


@pytest.mark.parametrize(
    ("path", "was", "now"),
    [
        ("usr/bin/python3", "other", "other"),
        ("usr/bin/python3", "other", "nothing"),
        ("usr/local/bin/sh", "nothing", "other"),
        ("usr/local/bin/curl", "nothing", "other"),
        ("usr/local/bin/diff", "nothing", "other"),
        ("root/.local/bin/diff", "nothing", "other"),
        ("usr/local/bin/python3", "nothing", "other"),
        ("root/.local/bin/uvx", "nothing", "other"),
        ("usr/local/bin/pytest", "nothing", "other"),
        ("usr/bin", "folder", "other"),
        ("bin", "other", "folder"),
        ("etc/alternatives/python3", "other", "other"),
        ("etc/ld.so.preload", "nothing", "other"),
        ("etc/profile.d/x.sh", "nothing", "other"),
        ("root/.bashrc", "other", "other"),
        ("home/a/.config/pip/pip.conf", "nothing", "other"),
        ("usr/lib/x86_64-linux-gnu/libc.so.6", "other", "other"),
        ("usr/local/lib/libz.so.1", "nothing", "other"),
        ("usr/lib/python3.11/json/decoder.py", "other", "other"),
        ("usr/lib/python3.11/evil", "nothing", "folder"),
        ("usr/lib/python311.zip", "nothing", "other"),
        ("usr/pyvenv.cfg", "nothing", "other"),
        ("usr/lib/python3/dist-packages/_pytest/python.py", "other", "other"),
        ("usr/lib/python3/dist-packages/pytest", "nothing", "folder"),
        ("usr/lib/python3/dist-packages/pytest_evil-1.dist-info", "nothing", "folder"),
        ("opt/venv/lib/python3.12/site-packages/sitecustomize.py", "nothing", "other"),
        ("app/usercustomize", "nothing", "folder"),
        ("app/__pycache__", "nothing", "folder"),
        ("conftest.py", "nothing", "other"),
        ("app/tests/conftest.py", "other", "other"),
        ("app/pytest.ini", "nothing", "other"),
        ("app/json.py", "nothing", "other"),
        ("app/pytest/__init__.py", "nothing", "other"),
        ("app/asyncio.py", "nothing", "other"),
        ("app/sqlite3/__init__.py", "nothing", "other"),
        ("app/_json.cpython-311-x86_64-linux-gnu.so", "nothing", "other"),
        ("app/src/sqlite3.py", "nothing", "other"),
        ("app/node_modules/jest/index.js", "other", "other"),
    ],
)
def test_what_runs_or_steers_a_grade_is_refused(path: str, was: str, now: str) -> None:
    assert judged(path, was, now) == REFUSED


@pytest.mark.parametrize(
    ("path", "was", "now"),
    [
        ("app/parcel/rates.py", "other", "other"),
        ("app/parcel/json.py", "nothing", "other"),
        ("app/parcel/queue", "nothing", "folder"),
        ("app/tests", "folder", "nothing"),
        ("app/tests/conftest.py", "other", "nothing"),
        ("app/queue.py", "nothing", "other"),
        ("app/json", "nothing", "folder"),
        ("app/parcel/sqlite3.py", "nothing", "other"),
        ("app/test/__init__.py", "nothing", "other"),
        ("usr/bin/tariff", "nothing", "other"),
        ("usr/local/bin/report", "other", "other"),
        ("usr/bin", "folder", "folder"),
        ("usr/lib/libtariff.so.2", "nothing", "other"),
        ("usr/lib/python3/dist-packages/numpy", "nothing", "folder"),
        ("usr/lib/python3/dist-packages/numpy/core.py", "other", "other"),
        ("usr/lib/python3.13", "nothing", "folder"),
        ("opt/tool/bin/python3", "nothing", "other"),
        ("etc/passwd", "other", "other"),
        ("etc/cron.d/x", "nothing", "other"),
        ("srv/python311/data.zip", "nothing", "other"),
    ],
)
def test_work_comes_along(path: str, was: str, now: str) -> None:
    assert judged(path, was, now) is None


def test_a_task_cannot_ask_for_the_image_s_interpreter() -> None:
    assert judged("usr/bin/python3", "other", "other") == REFUSED
    assert judged("usr/local/bin/python3") == REFUSED, "nor for one that stands before it"
    assert judged("opt/tool/bin/python3") is None


def test_a_program_of_the_image_that_the_verifier_names_is_the_agent_s_by_its_path_alone() -> None:
    assert judged("usr/local/bin/diff") == REFUSED, "a word of the task is no file to write"
    assert judged("usr/local/bin/cmp") is None
    assert judged("usr/local/bin/jq") is None, "the verifier does not start it"
    assert judged("app/diff") is None


def test_the_programs_of_the_image_s_virtual_environment_stay() -> None:
    assert judged("app/.venv/bin/pip", "other", "other", venv=True) == REFUSED
    assert judged("app/.venv/bin/black", "nothing", "other", venv=True) is None


def test_files_are_judged_by_their_content() -> None:
    site = "usr/lib/python3/dist-packages"
    assert judged(f"{site}/dev.pth", content=b"/opt/lib\n") is None
    assert judged(f"{site}/dev.pth", content=b"/opt/lib\nimport evil\n") == REFUSED
    assert judged(f"{site}/dev.pth", content=None) == REFUSED, "a link, or too large"
    points = f"{site}/x-1.dist-info/entry_points.txt"
    assert judged(points, content=b"[console_scripts]\nx = x:main\n") is None
    assert judged(points, content=b"[pytest11]\nx = x\n") == REFUSED


def test_settings_of_pytest_are_the_image_s_among_those_of_others() -> None:
    own = b'[project]\nname = "x"\n[tool.pytest.ini_options]\naddopts = "-p evil"\n[tool.ruff]\nline-length = 9\n'
    known = b'[tool.pytest.ini_options]\naddopts = "-q"\n'
    kept = judged("app/pyproject.toml", "other", content=own, known=known).decode()
    assert "evil" not in kept
    assert 'addopts = "-q"' in kept
    assert "line-length = 9" in kept
    assert judged("app/pyproject.toml", content=b'[project]\nname = "x"\n') is None
    assert judged("app/pyproject.toml", "other", content=known + b"[tool.ruff]\n", known=known) is None
    assert judged("app/pyproject.toml", content=b'tool.pytest.ini_options.addopts = "-p evil"\n') == REFUSED
    assert judged("app/setup.cfg", content=b"[tool:pytest]\naddopts = -p evil\n") == b""
    assert judged("app/setup.cfg", content=None) == REFUSED


def test_sections_of_pytest_are_found_however_they_are_written() -> None:
    text = "a = 1\n[ tool.'pytest'.ini_options ] # x\nb = 2\n[[tool.pytest.more]]\nc = 3\n[tool.pytester]\nd = 4\n"
    rest, ours = without_pytest(text)
    assert rest == "a = 1\n[tool.pytester]\nd = 4\n"
    assert ours.count("[") == 3


KNOWN = Steering.of(
    ["make"],
    [],
    "/workspace/depot",
    {
        "modules": ["asyncio", "attr"],
        "tools": ["attr", "attrs-25.dist-info"],
        "places": ["srv/lib"],
        "held": ["tests", "logs/verifier"],
    },
)


def known(path: str, was: Any = "nothing", now: Any = "other", **more: Any) -> Any:
    return KNOWN.judge(Change(path, was, now, **more), lambda: b"", lambda: b"")


def test_tools_of_the_image_stay_as_it_has_them() -> None:
    site = "usr/local/lib/python3.11/site-packages"
    for path in ("attr/__init__.py", "attr.py", "attrs-25.dist-info/METADATA"):
        assert known(f"{site}/{path}", "other") == REFUSED
    assert known(f"{site}/attribute/__init__.py", "other") is None


def test_modules_that_the_image_finds_are_not_shadowed_where_tests_look() -> None:
    assert known("workspace/depot/attr.py") == REFUSED
    assert known("srv/lib/asyncio/__init__.py") == REFUSED
    assert known("workspace/depot/asyncio", leads="/tmp/mine") == REFUSED
    assert known("workspace/depot/sqlite3.py") is None, "this image has none"


@pytest.mark.parametrize(
    "leads",
    [
        "/tests/expected.txt",
        "../../tests",
        "/",
        "/logs",
        "../..",
        "d/../../tests/x",
        "/proc/self/environ",
        "/dev/sda",
    ],
)
def test_links_do_not_lead_to_the_verifier(leads: str) -> None:
    assert known("workspace/depot/answer.txt", leads=leads) == REFUSED
    assert known("workspace/depot/answer.txt", "other", leads=leads) == REFUSED


@pytest.mark.parametrize(
    "leads",
    ["data/answer.txt", "../shared", "/usr/bin/python3", "/workspace", "/dev/null", "../../testsuite"],
)
def test_other_links_are_work(leads: str) -> None:
    assert known("workspace/depot/answer.txt", leads=leads) is None


def test_pipes_and_devices_are_no_work() -> None:
    assert known("workspace/depot/answer.txt", special=True) == REFUSED
