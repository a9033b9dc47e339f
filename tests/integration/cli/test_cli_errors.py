"""Bad input and bad luck at the command line: one clear line, an exit code, nothing lost, no traceback."""

import os
import signal
import socket
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
from command_line import ale, refused

from agent_runtime.store import index, read_segment, segment_path, write_segment


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with six oracle episodes of FrozenLake."""
    folder = tmp_path_factory.mktemp("records")
    words = ["--env", "frozen_lake", "--policy", "oracle", "--episodes", "6", "--out", str(folder / "run")]
    done = ale("rollout", *words, cwd=folder)
    assert done.returncode == 0, done.stderr
    assert "6 of 6 passed, 0 failed" in done.stdout
    return folder / "run"


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["--env", "frozen_lak"], 2, "Did you mean 'frozen_lake'?"),
        (["--env-arg", "slipery=true"], 2, "Did you mean 'slippery'?"),
        (["-s", "optim.lrr=1"], 2, "Did you mean 'optim.lr'?"),
        (["--config", "broken.toml"], 2, "broken.toml is not valid TOML"),
        (["--run", "broken.toml/x"], 73, "cannot write the run folder broken.toml/x"),
        (["--run", "./used"], 73, "--resume"),
        (["--run", "elsewhere", "--resume"], 73, "no run in runs/elsewhere"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_training_refuses(words: list[str], code: int, said: str, tmp_path: Path) -> None:
    (tmp_path / "broken.toml").write_text("[optim\n", encoding="utf-8")
    (tmp_path / "used").mkdir()
    (tmp_path / "used" / "notes").touch()
    refused(ale("train", *words, cwd=tmp_path), code, said)
    assert not (tmp_path / "runs").exists()


PLAYS = [
    ["rollout", "--env", "frozen_lake", "-n", "1"],
    ["env", "check", "frozen_lake"],
    ["env", "play", "frozen_lake"],
]


@pytest.mark.parametrize("words", PLAYS, ids=" ".join)
def test_the_backend_of_an_embedded_server_is_one_that_is_installed(words: list[str], tmp_path: Path) -> None:
    refused(ale(*words, "--backend", "proces", cwd=tmp_path), 2, "Did you mean 'process'?")
    both = ale(*words, "--backend", "process", "--rock", "127.0.0.1:1", cwd=tmp_path)
    refused(both, 2, "Leave one of --backend and --rock out")


def test_episodes_are_played_on_the_backend_that_was_chosen(recorded: Path, tmp_path: Path) -> None:
    played = ale("rollout", "--env", "code", "-n", "1", "--backend", "process", cwd=tmp_path)
    assert "1 of 1 passed, 0 failed" in played.stdout, played.stderr
    # Docker hosts no sandbox without an image, so that `code` cannot play there.
    elsewhere = ale("rollout", "--env", "code", "-n", "1", "--backend", "docker", cwd=tmp_path)
    assert elsewhere.returncode != 0
    again = ale("replay", "run", str(recorded), "--all", "--backend", "process", cwd=tmp_path)
    assert "6 of 6 trajectories came out as recorded" in again.stdout, again.stderr


BROKEN = {
    "needy": (
        "import a_package_nobody_has\n",
        "No module named 'a_package_nobody_has'. Install what it needs",
    ),
    "renamed": (
        "ENVIRONMENT = None\n",
        "has no attribute 'ENV'. Repair or update broken-envs, or uninstall it.",
    ),
    "buggy": ("1 / 0\n", "ZeroDivisionError: division by zero. Repair or update"),
}


@pytest.fixture
def broken_plugins(tmp_path: Path) -> Path:
    """A third party's distribution, as pip would leave it, of which no environment loads."""
    site = tmp_path / "site"
    info = site / "broken_envs-1.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Name: broken-envs\nVersion: 1\n", encoding="utf-8")
    points = [f"{name} = {name}_env:ENV" for name in BROKEN]
    (info / "entry_points.txt").write_text("\n".join(["[ale.envs]", *points]), encoding="utf-8")
    for name, (source, _) in BROKEN.items():
        (site / f"{name}_env.py").write_text(source, encoding="utf-8")
    return site


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_plugin_is_named_with_cause_and_remedy(
    name: str, broken_plugins: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path, str(broken_plugins)])
    refused(
        ale("rollout", "--env", name, cwd=tmp_path),
        2,
        f"the env plugin '{name}' ({name}_env:ENV)",
        BROKEN[name][1],
    )


def test_a_broken_plugin_does_not_hide_the_others(
    broken_plugins: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path, str(broken_plugins)])
    done = ale("env", "list", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    for name in [*BROKEN, "frozen_lake", "sokoban"]:
        assert f"\n{name} " in done.stdout


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--url", "http://127.0.0.1:80a"], "got 'http://127.0.0.1:80a'"),
        (["--url", "http://127.0.0.1:99999"], "Port out of range"),
        (["--url", "http://127.0.0.1:0"], "a port from 1 to 65535"),
        (["--url", "http://[::1:80"], "Invalid IPv6 URL"),
        (["--url", "https://127.0.0.1"], "without a path"),
        (["--url", "http://127.0.0.1", "--output-tokens", "40000"], "raise --context-tokens"),
    ],
    ids=lambda value: value[1] if isinstance(value, list) else "",
)
def test_running_an_agent_refuses(words: list[str], said: str, tmp_path: Path) -> None:
    refused(ale("agent", "run", "pi", "x", *words, cwd=tmp_path), 2, said)


def test_play_ends_with_the_input(tmp_path: Path) -> None:
    done = ale("env", "play", "frozen_lake", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "not passed after 0 turns" in done.stdout


def test_an_unknown_policy_names_the_nearest(tmp_path: Path) -> None:
    done = ale("rollout", "--env", "frozen_lake", "--policy", "oracel", cwd=tmp_path)
    refused(done, 2, "Did you mean 'oracle'?")


def test_records_come_out_as_recorded(recorded: Path) -> None:
    done = ale("replay", "run", str(recorded), "--all", cwd=recorded)
    assert done.returncode == 0, done.stderr
    assert "6 of 6 trajectories came out as recorded" in done.stdout


def test_a_record_that_lies_is_found(recorded: Path, tmp_path: Path) -> None:
    (info,) = index(recorded)
    first, *others = read_segment(info.path)
    observation = "P" + first.observations[-1][1:]
    lie = replace(
        first,
        observations=(*first.observations[:-1], observation),
        observation_hashes=(*first.observation_hashes[:-1], b"12345678"),
    )
    write_segment(segment_path(tmp_path, "rollout"), [lie, *others])
    done = ale("replay", "run", str(tmp_path), first.id, cwd=tmp_path)
    refused(done, 1, "1 of 1 trajectories did not reproduce their record")
    assert f"observation differs at turn {len(first.turns) - 1}" in done.stdout
    done = ale("replay", "run", str(tmp_path), "--all", cwd=tmp_path)
    refused(done, 1, "1 of 6 trajectories")


def test_a_damaged_file_shows_what_is_intact_and_names_the_place(recorded: Path, tmp_path: Path) -> None:
    (info,) = index(recorded)
    content = bytearray(info.path.read_bytes())
    content[len(content) // 2] ^= 0xFF
    damaged = tmp_path / "rollout.rollouts"
    damaged.write_bytes(content)
    done = ale("replay", "list", str(damaged), cwd=tmp_path)
    refused(done, 65, "corrupt trajectory file", "at byte", str(damaged))
    assert "5 of 5 trajectories shown" in done.stdout
    assert "oracle-00000" in done.stdout
    assert "oracle-00005" in done.stdout, "the record behind the damaged one is intact"


def test_a_damaged_file_does_not_hide_the_others(recorded: Path, tmp_path: Path) -> None:
    (info,) = index(recorded)
    folder = tmp_path / "trajectories"
    folder.mkdir()
    (folder / "a.rollouts").write_bytes(b"rubbish")
    (folder / "b.rollouts").write_bytes(info.path.read_bytes())
    done = ale("replay", "list", str(tmp_path), cwd=tmp_path)
    refused(done, 65, "a.rollouts at byte 0")
    assert "6 of 6 trajectories shown" in done.stdout
    assert "6 rollouts, 6 passed" in done.stdout
    assert ale("replay", "show", str(tmp_path), "oracle-00003", cwd=tmp_path).returncode == 0
    (folder / "c.rollouts").write_bytes(b"")
    refused(
        ale("replay", "list", str(tmp_path), cwd=tmp_path), 65, "2 records or files are damaged", "a.rollouts"
    )


def test_an_unknown_trajectory_names_the_nearest(recorded: Path) -> None:
    refused(ale("replay", "show", str(recorded), "oracle-9", cwd=recorded), 65, "Did you mean 'oracle-0000")
    refused(ale("replay", "list", "nothing-here", cwd=recorded), 65, "no trajectories in 'nothing-here'")


def test_a_full_disk_is_named_and_leaves_no_half_file(recorded: Path, tmp_path: Path) -> None:
    words = ["--env", "frozen_lake", "--policy", "oracle", "--episodes", "6", "--out", str(tmp_path / "run")]
    done = ale("rollout", *words, cwd=tmp_path, limit_bytes=4096)
    refused(done, 74, "rollout.rollouts")
    assert list((tmp_path / "run").rglob("*.rollouts*")) == []


def test_a_server_that_is_gone_is_named(recorded: Path, tmp_path: Path) -> None:
    address = f"unix://{tmp_path}/gone"
    refused(ale("replay", "run", str(recorded), "--rock", address, cwd=tmp_path), 69, address)


def test_episodes_that_could_not_run_are_an_error(tmp_path: Path) -> None:
    words = ["--env", "frozen_lake", "--episodes", "2", "--rock", f"unix://{tmp_path}/gone"]
    done = ale("rollout", *words, cwd=tmp_path)
    refused(done, 69, "2 of 2 episodes failed to run", "unavailable", f"{tmp_path}/gone")
    assert "0 of 0 passed, 2 failed to run" in done.stdout


def test_a_ray_cluster_that_is_not_there_is_named_at_once(tmp_path: Path) -> None:
    with socket.socket() as taken:  # bound, and nobody listens
        taken.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        refused(
            ale("train", "--quiet", "--ray-address", address, cwd=tmp_path), 2, f"Ray cluster at {address}"
        )


def test_a_ray_that_cannot_start_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path / "file" / "folder"))
    refused(ale("train", "--quiet", cwd=tmp_path), 75, "cannot start Ray on this machine", "Not a directory")


def test_ctrl_c_at_the_prompt_ends_the_game(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "ale", "env", "play", "frozen_lake"]
    with subprocess.Popen(
        command,
        cwd=tmp_path,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # Tests that were started in the background ignore it, and so would all that they start.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    ) as game:
        assert game.stdout is not None
        while "One action per line" not in game.stdout.readline():
            pass
        time.sleep(0.5)  # the prompt follows; the signal may come at any moment after it all the same
        game.send_signal(signal.SIGINT)
        assert game.wait(timeout=30) == 130


SMALL = [
    *("-s", "warmup.trajectories=4", "-s", "warmup.epochs=1", "-s", "eval.tasks=4", "-s", "eval.every=0"),
    *("-s", "rollout.groups_per_step=2", "-s", "rollout.group_size=2", "-s", "checkpoint.every=1000000"),
    *("-s", "rollout.workers=1", "-s", "rollout.engines=1"),
]


@pytest.mark.ray
def test_ctrl_c_in_training_saves_and_the_run_continues(tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "ale",
        "train",
        "--env",
        "frozen_lake",
        "--steps",
        "100000",
        "--run",
        "./lake",
    ]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    with subprocess.Popen(
        [*command, *SMALL], cwd=tmp_path, stderr=subprocess.PIPE, text=True, env=environment
    ) as training:
        assert training.stderr is not None
        for line in training.stderr:
            if line.startswith("step 2/"):
                break
        training.send_signal(signal.SIGINT)
        said = training.stderr.read()
        assert training.wait(timeout=60) == 130
    assert "Stopping after this step" in said
    assert "Continue with: ale train --resume --run ./lake" in said
    saved = max(int(path.name.removeprefix("step-")) for path in (tmp_path / "lake/checkpoints").iterdir())
    assert saved >= 2
    refused(
        ale("train", "--resume", "--run", "./lake", "--steps", "3", cwd=tmp_path), 2, "steps = 100000, got 3"
    )
    refused(ale("eval", "./lake", cwd=tmp_path), 73, "ale train --resume --run ./lake")
