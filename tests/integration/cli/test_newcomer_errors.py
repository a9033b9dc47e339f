"""What a newcomer gets wrong, as one table: the exit code of docs/cli.md, one line, and what to do about it."""

import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from command_line import ale, refused

from ale.config import resolve
from ale.training import runs

RUN = ("train", "--env", "frozen_lake", "--quiet")
PLAY = ("rollout", "--env", "frozen_lake", "-n", "2")


@dataclass(frozen=True)
class Case:
    words: tuple[str, ...]
    code: int
    happened: str
    remedy: str

    def __str__(self) -> str:
        return " ".join(self.words)


CASES = [
    # names and options
    Case(("train", "--env", "frozen_lak"), 2, "unknown env", "Did you mean 'frozen_lake'?"),
    Case((*RUN, "-s", "optim.lrr=1"), 2, "optim.lrr", "Did you mean 'optim.lr'?"),
    Case((*RUN, "-s", "lr=1"), 2, "unknown option 'lr'", "Did you mean 'optim.lr'?"),
    Case((*RUN, "--from", "lostt"), 73, "no run in runs/lostt", "Did you mean 'lost'? Runs here: lost, torn"),
    Case(("algo", "show", "ipaa"), 2, "unknown algorithm 'ipaa'", "Did you mean 'ipa'? Known: bc,"),
    Case(("lineage", "lostt"), 65, "no lineage in runs/lostt", "Did you mean 'lost'?"),
    Case(("replay", "show", "lostt"), 65, "no trajectories in 'lostt'", "Did you mean 'lost'?"),
    Case((*RUN, "--algo", "ipaa"), 2, "ipaa", "Did you mean 'ipa'?"),
    Case((*RUN, "--env-arg", "slipery=true"), 2, "slipery", "Did you mean 'slippery'?"),
    Case((*RUN, "--config", "broken.toml"), 2, "broken.toml is not valid TOML", "line"),
    Case((*PLAY, "--policy", "oracel"), 2, "oracel", "Did you mean 'oracle'?"),
    Case(("eval", "no-such-run"), 2, "unknown run or model 'no-such-run'", "OWNER/NAME"),
    Case(("eval", "runs/no-such-run"), 2, "runs/no-such-run", "Known: coder, lost, smollm2, tiny, torn"),
    Case(("env", "show", "sokobann"), 2, "sokobann", "Did you mean 'sokoban'?"),
    Case(("agent", "show", "qwen-cod"), 2, "qwen-cod", "Did you mean 'qwen-code'?"),
    Case(("agent", "run", "pi", "x", "--url", "https://127.0.0.1"), 2, "--url must be", "http://HOST:PORT"),
    Case((*RUN, "--model", "used"), 2, "the folder 'used' holds no model", "got no config.json"),
    Case((*RUN, "--model", "nobody/nothing"), 2, "http://127.0.0.1:9 cannot be reached", "--model DIR"),
    # classes of one's own, and what hosts them
    Case(
        ("train", "--env", "own_envs:BadReset"),
        2,
        "raised RuntimeError: the reset broke",
        "Correct the class",
    ),
    Case(
        ("rollout", "--env", "own_envs:BadStep"), 75, "raised ValueError: the step broke", "Correct the class"
    ),
    Case(("rollout", "--env", "own_envs:Short"), 75, "step returned 3 values", "expected 5"),
    Case(("rollout", "--env", "gem:nothing"), 2, "gem:nothing has no reference policy", "--policy RUN"),
    Case(("env", "register", "task"), 69, "the Docker engine does not answer", "Install Docker"),
    # folders and records
    Case((*RUN, "--run", "./used"), 73, "is not empty", "--resume"),
    Case((*RUN, "--run", "broken.toml/x"), 73, "cannot write the run folder", "--run"),
    Case((*RUN, "--run", "nothing", "--resume"), 73, "no run in runs/nothing", "Runs here:"),
    Case(("replay", "show", "nothing"), 65, "no trajectories in 'nothing'", "Runs here:"),
    Case(("replay", "list", "rubbish.rollouts"), 65, "corrupt trajectory file", "rubbish.rollouts"),
    Case(("lineage", "nothing"), 65, "no lineage in runs/nothing", "Runs here:"),
    Case(("compare", "lost", "nothing"), 73, "no run in runs/nothing", "Runs here:"),
    Case(("timeline", "nothing"), 65, "no timeline.jsonl in runs/nothing", "ale train --resume"),
    Case(
        (*RUN, "--run", "lost", "--resume"),
        65,
        "no checkpoint is left in runs/lost/checkpoints",
        "--run NAME",
    ),
    Case((*RUN, "--run", "torn", "--resume"), 65, "cannot read checkpoint", "--run NAME"),
    # servers
    Case((*PLAY, "--rock", "unix:///nowhere/gone"), 69, "/nowhere/gone", "ale rock"),
    Case(("rock", "status", "unix:///nowhere/gone"), 69, "/nowhere/gone", "ale rock"),
    Case(("rock", "ps", "--rock", "unix:///nowhere/gone"), 69, "/nowhere/gone", "ale rock"),
    Case((*RUN, "--ray-address", "127.0.0.1:1"), 2, "Ray cluster at 127.0.0.1:1", "--ray-address"),
    Case(("rock", "serve", "--listen", "127.0.0.1:0"), 2, "token", "--insecure"),
]

CLASSES = """
class BadReset:
    def reset(self, seed=None): raise RuntimeError("the reset broke")
    def step(self, action): return "x", 0.0, True, False, {}
class BadStep:
    def reset(self, seed=None): return "say go", {}
    def step(self, action): raise ValueError("the step broke")
    def expert(self, observation): return "go"
class Short(BadStep):
    def step(self, action): return "x", 0.0, True
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "broken.toml").write_text("[optim\n", encoding="utf-8")
    (tmp_path / "rubbish.rollouts").write_bytes(b"rubbish")
    (tmp_path / "own_envs.py").write_text(CLASSES, encoding="utf-8")
    (tmp_path / "task/environment").mkdir(parents=True)
    (tmp_path / "task/tests").mkdir()
    (tmp_path / "task/task.toml").write_text('version = "1.0"\n', encoding="utf-8")
    (tmp_path / "task/instruction.md").write_text("Do it.", encoding="utf-8")
    (tmp_path / "task/environment/Dockerfile").write_text("FROM scratch\n", encoding="utf-8")
    (tmp_path / "task/tests/test.sh").write_text("exit 1\n", encoding="utf-8")
    (tmp_path / "used").mkdir()
    (tmp_path / "used" / "notes").touch()
    for name in ("lost", "torn"):
        run = tmp_path / "runs" / name
        runs.open_new(run, resolve(options={"env": "frozen_lake"}).config)
    (tmp_path / "runs/lost/metrics.jsonl").write_text('{"step": 3, "kind": "train"}\n')
    (tmp_path / "runs/torn/checkpoints/step-000003").mkdir(parents=True)
    return tmp_path


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a server that asks for tokens."""
    folder = tmp_path_factory.mktemp("server")
    made = ale(
        "rock", "token", "create", "--tokens", "tokens.json", "--tenant", "a", "--scope", "env", cwd=folder
    )
    assert made.returncode == 0, made.stderr
    words = ["rock", "serve", "--listen", "127.0.0.1:0", "--tokens", "tokens.json"]
    with subprocess.Popen(
        [sys.executable, "-m", "ale", *words], cwd=folder, stdout=subprocess.PIPE, text=True
    ) as server:
        assert server.stdout is not None
        yield server.stdout.readline().strip()
        server.terminate()


def test_a_wrong_token_is_one_line(guarded: str, folder: Path) -> None:
    done = ale(*PLAY, "--rock", guarded, cwd=folder, ROCK_TOKEN="rock_wrong")
    refused(done, 77, "2 of 2 episodes failed to run", "token")


@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_newcomers_error_is_one_line_with_a_remedy(case: Case, folder: Path) -> None:
    # A hub and an engine that are asked refuse at once: nothing listens there.
    done = ale(
        *case.words, cwd=folder, HF_ENDPOINT="http://127.0.0.1:9", DOCKER_HOST="unix:///nowhere/docker.sock"
    )
    refused(done, case.code, case.happened, case.remedy)


def test_a_port_that_is_taken_is_one_line(folder: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        refused(ale("rock", "serve", "--insecure", "--listen", address, cwd=folder), 69, address, "another")
