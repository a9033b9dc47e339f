"""A user's story, told by the command line on a real Docker engine: a folder becomes an environment that is trained in."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from integration.command_line import ale, refused
from integration.docker_engine import engine, skip_without

__all__ = ["engine"]

EXAMPLE = Path(__file__).parents[3] / "examples" / "06_own_dockerfile"
pytestmark = [pytest.mark.usefixtures("engine"), pytest.mark.timeout(240)]


@pytest.fixture(scope="module", autouse=True)
def base(engine: None) -> None:
    skip_without("debian:bookworm-slim")


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("ale") / "home"


@pytest.fixture(scope="module")
def mine(home: Path) -> Path:
    """The folder of an environment that is registered as `mine`."""
    folder = home.parent / "folder"
    shutil.copytree(EXAMPLE, folder)
    done = ale("env", "register", str(folder), "--name", "mine", cwd=home.parent, ALE_HOME=str(home))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "PASS oracle scores 1" in done.stdout
    assert "mine is ready" in done.stdout
    return folder


def own(*words: str, home: Path, cwd: Path | None = None) -> str:
    done = ale(*words, cwd=cwd or home.parent, timeout_s=200, ALE_HOME=str(home))
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_it_is_listed_with_its_digest_source_and_report(home: Path, mine: Path) -> None:
    listed = json.loads(own("env", "list", "--json", home=home))
    (entry,) = [env for env in listed if env["registered"]]
    assert (entry["name"], entry["source"], entry["tasks"]) == ("mine", str(mine), 1)
    assert entry["check"]["passed"] is True
    assert entry["version"] == entry["digest"][:12]
    assert entry["images"][0].startswith("sha256:")
    shown = own("env", "list", home=home)
    assert f"mine  {entry['version']}  1      PASS 20" in shown
    assert "Write that customer's name" not in shown
    assert "Marrow Ltd" not in own("env", "show", "mine", home=home)


def test_its_report_is_kept_with_the_evidence(home: Path, mine: Path) -> None:
    shown = own("env", "show", "mine", home=home)
    assert "FAIL" not in shown
    assert "1 of 1 tasks, median 3 turns" in shown
    assert "no file of a grader or solution, no later git history, in 1 boxes" in shown


@pytest.mark.ray
def test_it_is_trained_in_and_a_rollout_is_run_again(home: Path, mine: Path, tmp_path: Path) -> None:
    own("train", "--env", "mine", "--steps", "3", home=home, cwd=tmp_path)
    run = tmp_path / "runs" / "mine-ipa-seed0"
    summary = json.loads((run / "summary.json").read_text())
    assert (summary["env"], summary["steps"], summary["optimum"]) == ("mine", 3, 1.0)
    listed = own("replay", "list", str(run), home=home, cwd=tmp_path)
    assert "0 errored" in listed
    replayed = own("replay", "run", str(run / "trajectories" / "expert.rollouts"), home=home, cwd=tmp_path)
    assert "turns and the verdict came out as recorded" in replayed


def test_a_person_can_play_it_with_actions_of_several_lines(home: Path, mine: Path, tmp_path: Path) -> None:
    typed = "cat > best.txt <<EOF\nMarrow Ltd\nEOF\nsubmit\n"
    done = ale("env", "play", "mine", cwd=tmp_path, typed=typed, ALE_HOME=str(home))
    assert "passed after 2 turns, reward 1" in done.stdout, done.stdout + done.stderr


def test_the_same_folder_again_brings_it_up_to_date(home: Path, mine: Path) -> None:
    before = own("env", "list", home=home)
    own("env", "register", str(mine), "--name", "mine", "--no-check", home=home)
    assert own("env", "list", home=home) == before, "the same content is the same environment"
    other = home.parent / "other"
    shutil.copytree(EXAMPLE, other)
    done = ale("env", "register", str(other), "--name", "mine", cwd=home.parent, ALE_HOME=str(home))
    refused(done, 2, "'mine' is registered already", str(mine), "--name")


def test_a_bad_task_is_kept_with_its_report_and_shows_the_graders_words(home: Path, tmp_path: Path) -> None:
    bad = tmp_path / "wrong"
    shutil.copytree(EXAMPLE, bad)
    (bad / "solution" / "solve.sh").write_text("#!/bin/sh\necho 'Harbour Tea' > best.txt\n")
    shutil.copy(EXAMPLE / "tests" / "test.sh", bad / "environment" / "orders" / "000.txt")
    done = ale("env", "register", str(bad), cwd=tmp_path, ALE_HOME=str(home))
    assert done.returncode == 1
    assert "FAIL oracle scores 1" in done.stdout
    assert "wrong (train/0): reward 0. Its last words: best.txt does not name the customer" in done.stdout
    assert "FAIL nothing gives the answer away" in done.stdout
    assert "/shop/orders/000.txt holds" in done.stdout
    assert "FAIL (2) 20" in own("env", "list", home=home)
    own("env", "remove", "wrong", home=home)
    assert not any(line.startswith("wrong ") for line in own("env", "list", home=home).splitlines())


def test_a_dockerfile_that_fails_shows_its_last_lines_and_registers_nothing(
    home: Path, tmp_path: Path
) -> None:
    bad = tmp_path / "broken"
    shutil.copytree(EXAMPLE, bad)
    with (bad / "environment" / "Dockerfile").open("a") as file:
        file.write("RUN echo so far so good && no-such-program\n")
    done = ale("env", "register", str(bad), cwd=tmp_path, ALE_HOME=str(home))
    assert done.returncode == 2
    assert "so far so good" in done.stderr
    assert "no-such-program" in done.stderr
    assert done.stderr.splitlines()[-1].startswith("ale: 1 of 1 images did not build")
    assert "broken" not in own("env", "list", home=home)


def test_without_an_engine_it_says_what_to_install(tmp_path: Path) -> None:
    done = ale(
        *("env", "register", str(EXAMPLE)),
        cwd=tmp_path,
        ALE_HOME=str(tmp_path / "home"),
        DOCKER_HOST="unix:///nowhere/docker.sock",
    )
    refused(done, 69, "does not answer at /nowhere/docker.sock", "apt-get install docker.io", "--rock")
