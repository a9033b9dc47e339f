"""Mistakes on purpose, as one table: each is one line that names what was typed, with a remedy and the right exit code.

`tests/integration/cli/test_newcomer_errors.py` has those that need servers, models, runs or records.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from ale import cli
from rock_env import plugins

FILES = {
    "broken.toml": b"[optim\n",
    "odd.toml": b"[optim]\nlr = 'fast'\n",
    "misspelt.toml": b"[optim]\nlrr = 1\n",
    "latin.toml": b"env = '\xe9'\n",
    "file": b"",
    "no.yaml": b"name: [x\n",
    "half.yaml": b"name: mine\n",
    "faulty_module.py": b"import nothing_like_this\n",
    "typo_module.py": b"def f(:\n",
    "own_envs.py": b"""
class NoReset:
    def step(self, action): return "x", 0.0, True, False, {}
class NoStep:
    def reset(self, seed=None): return "x", {}
class Needs:
    def __init__(self, size): self.size = size
    def reset(self, seed=None): return "x", {}
    def step(self, action): return "x", 0.0, True, False, {}
def function(): pass
class Raises:
    def reset(self, seed=None): raise ValueError
    def step(self, action): return "x", 0.0, True, False, {}
""",
}
LAKE = "train --env frozen_lake"
MISTAKES = [
    # commands and options
    ("tran", 2, "no such command 'tran'", "Did you mean 'train'?"),
    ("env shw code", 2, "no such command 'shw'", "Did you mean 'show'?"),
    ("replay lst", 2, "no such command 'lst'", "Did you mean 'list'?"),
    ("rock stat", 2, "no such command 'stat'", "Did you mean 'status'?"),
    ("--verison", 2, "--verison", "Did you mean '--version'?"),
    ("train --stps 3", 2, "--stps", "Did you mean '--steps'?"),
    ("train --environment code", 2, "--environment", "Did you mean '--env'?"),
    ("train --enviroment code", 2, "--enviroment", "Did you mean '--env'?"),
    ("train --lr 1e-3", 2, "--lr", "Did you mean '-s optim.lr=VALUE'?"),
    ("train --learning-rate 1e-3", 2, "--learning-rate", "Did you mean '-s optim.lr=VALUE'?"),
    ("train --batch-size 8", 2, "--batch-size", "Did you mean '-s rollout.groups_per_step=VALUE'?"),
    ("rollout --env code --polcy x", 2, "--polcy", "Did you mean '--policy'?"),
    ("rock create --image x", 2, "--image", "Give IMAGE without a name."),
    ("train --env", 2, "option '--env' requires an argument", "--help"),
    ("train --steps many", 2, "invalid value for '--steps'", "`ale train --help`"),
    ("train --steps -1", 2, "invalid value for '--steps'", "greater than or equal to 0"),
    ("rollout --env code -n 0", 2, "invalid value for '--episodes' / '-n'", "greater than or equal to 1"),
    ("train frozen_lake", 2, "unexpected extra argument", "Did you mean --env frozen_lake?"),
    ("env play", 2, "missing argument 'NAME'", "`ale env play --help`"),
    ("rollout", 2, "missing option '--env'", "`ale rollout --help`"),
    # settings
    (f"{LAKE} --algo gpro", 2, "unknown algorithm 'gpro'", "Did you mean 'grpo'?"),
    (f"{LAKE} -s optim.learning_rate=1", 2, "'optim.learning_rate'", "Did you mean 'optim.lr'?"),
    (f"{LAKE} -s learning_rate=1", 2, "'learning_rate'", "Did you mean 'optim.lr'?"),
    (f"{LAKE} -s optim.lrr=1", 2, "'optim.lrr'", "Did you mean 'optim.lr'?"),
    (f"{LAKE} -s sampling.top_p=1", 2, "'sampling.top_p'", "command line. Known here: sampling."),
    (f"{LAKE} -s optim.lr", 2, "'optim.lr' is not of the form", "NAME=VALUE"),
    (f"{LAKE} -s optim.lr=fast", 2, "bad value for 'optim.lr'", "valid number"),
    (f"{LAKE} -s optim.lr=-1", 2, "bad value for 'optim.lr'", "greater than 0"),
    (f"{LAKE} -s optim.lr=nan", 2, "bad value for 'optim.lr'", "got nan"),
    (f"{LAKE} -s optim=1", 2, "'optim' in the command line is a section", "set one of optim.lr"),
    (f"{LAKE} -s rollout.group_size=0", 2, "'rollout.group_size'", "greater than 0"),
    (f"{LAKE} -s rollout.mode=async", 2, "'rollout.mode'", "'pipeline' or 'stream'"),
    (f"{LAKE} -s rollout.mode=stream", 2, "got rollout.batching='lockstep'", "Set rollout.batching='eager'"),
    (
        f"{LAKE} -s rollout.spare_groups=2",
        2,
        "rollout.spare_groups=2 would do nothing",
        "expected 'stream' with at least 1",
    ),
    (f"{LAKE} -s eval.split=heldout", 2, "unknown eval.split", "Did you mean 'held_out'?"),
    # environments and their arguments
    ("train --env frozen_lak", 2, "'frozen_lak'", "Did you mean 'frozen_lake'?"),
    ("train --env math:0,frozen_lake:1", 2, "the share of 'math' is 0", "expected a number above 0"),
    ("train --env math:0.4,frozen_lake", 2, "got 'frozen_lake'", "expected NAME:SHARE"),
    (f"{LAKE} --env-arg size", 2, "bad --env-arg 'size'", "KEY=VALUE"),
    (f"{LAKE} --env-arg slipery=true", 2, "'slipery'", "Did you mean 'slippery'?"),
    (f"{LAKE} --env-arg slippery=maybe", 2, "'slippery'", "valid boolean"),
    ("rollout --env frozen_lake --split tests", 2, "unknown split 'tests'", "Known: held_out, train"),
    ("rollout --env frozen_lake --policy oracel", 2, "'oracel'", "Did you mean 'oracle'?"),
    ("env show sokobann", 2, "'sokobann'", "Did you mean 'sokoban'?"),
    ("env register nowhere", 2, "nowhere", "task"),
    ("env remove nothing", 2, "'nothing'", "Known"),
    # classes of the user's own
    ("train --env own_envs:NoReset", 2, "got no reset", "expected reset(seed=...)"),
    ("train --env own_envs:NoStep", 2, "got no step", "step(action)"),
    ("train --env own_envs:Needs", 2, "Needs() needs 'size'", "give size a default"),
    ("train --env own_envs:NoRest", 2, "'NoRest'", "Did you mean 'NoReset'?"),
    ("train --env own_envs:function", 2, "type function", "expected a class with reset and step"),
    (
        "train --env own_env:NoReset",
        2,
        "No module named 'own_env'",
        "Run this in the folder where own_env lies",
    ),
    ("train --env faulty_module:X", 2, "No module named 'nothing_like_this'", "Install what it imports"),
    (
        "train --env nowhere/own_envs.py:X",
        2,
        "got no file nowhere/own_envs.py",
        "expected one with the class",
    ),
    (
        "train --env own_envs:Raises --run ./folder",
        73,
        "folder is not empty",
        "--run NAME",
    ),  # before it is played
    ("debug own_envs:NoStep/train/0", 2, "got no step", "step(action)"),
    ("train --env own_envs.py", 2, "'own_envs.py' is a file", "Name one, as in --env own_envs.py:MyEnv"),
    ("train --env own_envs", 2, "a class of own_envs.py", "Name one, as in --env own_envs:MyEnv"),
    ("train --env typo_module:X", 2, "SyntaxError", "typo_module.py, line 1"),
    # files
    (f"{LAKE} --config missing.toml", 2, "missing.toml: No such file", "Name a TOML file"),
    (f"{LAKE} --config folder", 2, "folder: Is a directory", "Name a TOML file"),
    (f"{LAKE} --config broken.toml", 2, "broken.toml is not valid TOML", "line"),
    (f"{LAKE} --config odd.toml", 2, "'optim.lr' in odd.toml", "valid number"),
    (f"{LAKE} --config misspelt.toml", 2, "'optim.lrr' in misspelt.toml", "Did you mean 'optim.lr'?"),
    (f"{LAKE} --config latin.toml", 2, "latin.toml is not a text file", "byte 7 is not UTF-8"),
    # agents
    ("train --env swe --agent codx", 2, "unknown agent 'codx'", "Did you mean 'codex'?"),
    ("train --env swe --agent missing.yaml", 2, "missing.yaml", "Name a YAML file"),
    ("train --env swe --agent no.yaml", 2, "no.yaml is no YAML", "line 1"),
    ("train --env swe --agent half.yaml", 2, "half.yaml", "version"),
    ("agent install qwen-cod", 2, "'qwen-cod'", "Did you mean 'qwen-code'?"),
    # runs and records
    ("replay show s10", 65, "no trajectories in 's10'", "Runs here:"),
    ("timeline s10", 65, "runs/s10", "ale train --resume"),
    ("lineage s10", 65, "no lineage in runs/s10", "Runs here:"),
    ("replay list file", 65, "corrupt trajectory file", "Restore the file from a copy"),
]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    for name, content in FILES.items():
        (tmp_path / name).write_bytes(content)
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "notes.txt").touch()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    for name in ("ALE_DEBUG", "ROCK_ADDRESS"):
        monkeypatch.delenv(name, raising=False)
    for name in ("GRPC_VERBOSITY", "RAY_DEDUP_LOGS_SKIP_REGEX"):
        monkeypatch.setenv(name, "NONE")
    handler, modules = signal.getsignal(signal.SIGTERM), set(sys.modules)
    with plugins.given({}):  # a class of a command line is known to this process after it
        yield tmp_path
    signal.signal(signal.SIGTERM, handler)
    for name in ("own_envs", "faulty_module", "typo_module"):
        if name not in modules:
            sys.modules.pop(name, None)


@pytest.mark.parametrize(
    ("typed", "code", "happened", "remedy"), MISTAKES, ids=[each[0] for each in MISTAKES]
)
def test_a_mistake_is_one_line_with_a_remedy(
    typed: str,
    code: int,
    happened: str,
    remedy: str,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    before = sorted(folder.rglob("*.*"))
    monkeypatch.setattr(sys, "argv", ["ale", *typed.split()])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    said = capsys.readouterr().err
    lines = [line for line in said.splitlines() if not line.startswith(("note: ", "waiting for "))]
    assert (ended.value.code, len(lines)) == (code, 1), said
    assert lines[0].startswith("ale: ")
    assert happened in lines[0]
    assert remedy in lines[0]
    assert "Traceback" not in said
    kept = [path for path in sorted(folder.rglob("*.*")) if "__pycache__" not in path.parts]
    assert kept == before, "a mistake leaves nothing behind"


def test_there_are_at_least_sixty_mistakes() -> None:
    assert len({typed for typed, *_ in MISTAKES}) == len(MISTAKES) >= 60
