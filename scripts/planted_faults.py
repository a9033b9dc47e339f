"""Plant faults one by one in a copy of the tree, and say how many of them `make test` catches.

Each fault is a slip that a change could bring: a bound, an order, a sign, a forgotten case. None takes a fence away. A fault
counts as caught if a test of `make test` fails with it and passes without it. To be affordable a fault is judged by those
tests of `make test` that stand nearest to its file (`TESTS`); `tests/conftest.py` says which tests belong to `make test`.

    python scripts/planted_faults.py [NAME...]

The copy is made of the last commit, in a temporary folder. The exit code is 1 where more than two of all faults survive, or
one of those named.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

__all__ = ["FAULTS", "TESTS", "Fault", "main", "tests_of"]

ROOT = Path(__file__).resolve().parents[1]
MAY_SURVIVE = 2
_TEST_S, _LIMIT_S = 100, 900
"""Of one test, which a fault may keep waiting for ever, and of all tests of a fault."""


class Fault(NamedTuple):
    """One slip: `old`, which the file holds exactly once, becomes `new`."""

    name: str
    file: str
    old: str
    new: str
    each: tuple[str, ...] = ()
    """Tests each of which must fail with it, in place of those that stand nearest."""


FAULTS = (
    # -- rock_env
    Fault(
        "the latest deadline ends a sandbox",
        "rock_env/lifecycle.py",
        "return min(deadlines, key=lambda",
        "return max(deadlines, key=lambda",
    ),
    Fault(
        "a tenant's weight counts against it",
        "rock_env/server/capacity/fair_queue.py",
        "dominant_share(state.used) / self._quota(tenant).weight",
        "dominant_share(state.used) * self._quota(tenant).weight",
    ),
    Fault(
        "an earlier deadline does not move the timer",
        "rock_env/server/sandboxes/deadlines.py",
        "self._timer.when() <= at:",
        "self._timer.when() >= at:",
    ),
    Fault(
        "a command that is taken up again repeats output",
        "rock_env/client/sandbox/exec.py",
        "self._received[name] = chunk.offset + len(chunk.data)",
        "self._received[name] = len(chunk.data)",
    ),
    Fault(
        "a change that failed is kept in SQLite",
        "rock_env/store/sqlite/records.py",
        '            database.execute("ROLLBACK TO attempt")\n',
        "",
    ),
    Fault(
        "collected snapshots count in PostgreSQL",
        "rock_env/store/postgres/records.py",
        "WHERE tenant = $1 AND state != 'COLLECTED'",
        "WHERE tenant = $1",
    ),
    Fault(
        "a range of a file ends a byte early over REST",
        "rock_env/server/rest/streams.py",
        "message.offset, message.length = start, end - start + 1",
        "message.offset, message.length = start, end - start",
    ),
    Fault(
        "output is told from the start of its block",
        "rock_env/guest/command.py",
        "block[offset - start :] if offset > start else block",
        "block",
    ),
    Fault(
        "a test in which the run broke off passed",
        "rock_env/grading/parsers/pytest_text.py",
        "yield at, Outcome.ERROR",
        "yield at, Outcome.PASSED",
    ),
    Fault(
        "an image's variables hide those of the spec",
        "rock_env/backends/docker/container.py",
        "{**base, **self.env, **dict(spec.env)}",
        "{**base, **dict(spec.env), **self.env}",
    ),
    Fault(
        "a snapshot of a container forgets what it builds upon",
        "rock_env/backends/docker/layers.py",
        '(container["Config"].get("Labels") or {}).get(LABEL_FROM, "")',
        '""',
    ),
    Fault(
        "calls of a session find no replica",
        "rock_env/server/replicas/forward.py",
        'return value.partition("/")[0]',
        "return value",
    ),
    # -- agent_runtime
    Fault(
        "the order of an agent's tools tells its requests apart",
        "agent_runtime/calls/canonical.py",
        "told = sorted((tool.name, tool.description.strip(), canonical_json(tool.parameters)) for tool in tools)",
        "told = [(tool.name, tool.description.strip(), canonical_json(tool.parameters)) for tool in tools]",
    ),
    Fault(
        "the tokens that branches share train once per branch",
        "trainer/data/build.py",
        "first_S += [False] * branch.shared + [True] * (len(branch.turns) - branch.shared)",
        "first_S += [True] * len(branch.turns)",
    ),
    Fault(
        "an earlier version's file hides the one written anew",
        "agent_runtime/store.py",
        'found |= {path.stem: path for path in Path(folder).glob(f"*{SUFFIX}")}',
        'found = {path.stem: path for path in Path(folder).glob(f"*{SUFFIX}")} | found',
    ),
    Fault(
        "the last stop text ends an answer",
        "agent_runtime/policy.py",
        'return min(found, default=(-1, ""))',
        'return max(found, default=(-1, ""))',
    ),
    Fault(
        "an agent has one turn more than its budget",
        "agent_runtime/gateway/session.py",
        "self._turns + answers > self.budget.turns",
        "self._turns + answers > 1 + self.budget.turns",
    ),
    # -- trainer
    Fault(
        "the first chunk gets the last one's return",
        "trainer/algo/terms/returns.py",
        "final * gamma ** steps[::-1].astype(np.float64)",
        "final * gamma ** steps.astype(np.float64)",
    ),
    Fault(
        "advantages are divided by the population's deviation",
        "trainer/algo/terms/returns.py",
        "scores_G.std(ddof=1)",
        "scores_G.std(ddof=0)",
    ),
    Fault(
        "a rollout that is played again gets the same seed each time",
        "trainer/rollout/filtering.py",
        'derive(request.seed, "again", attempt)',
        'derive(request.seed, "again")',
    ),
    Fault(
        "experts count in the divisor of the policy's loss",
        "trainer/data/build.py",
        "max(len(trajectories) - len(experts), 1) * token_budget",
        "max(len(trajectories), 1) * token_budget",
    ),
    Fault(
        "rows that go on are sampled with the top-p of others",
        "trainer/samplers/sampling.py",
        "self.top_p_B[rows])",
        "self.top_p_B[: len(rows)])",
    ),
    Fault(
        "the learning rate starts to fall a step early",
        "trainer/learners/rates.py",
        "(step - 1) / max(1, steps - 1)",
        "step / max(1, steps)",
    ),
    Fault(
        "a resumed run does its last step again",
        "trainer/run.py",
        "iter(range(self._state.step + 1, self._config.steps + 1))",
        "iter(range(max(self._state.step, 1), self._config.steps + 1))",
    ),
    Fault(
        "a checkpoint of a stream forgets the groups that are under way",
        "trainer/scheduler/streaming.py",
        "left = sorted([*self._ready, *self._playing.values(),",
        "left = sorted([*self._ready,",
        each=("tests/unit/trainer/simulator", "tests/unit/trainer/scheduler"),
    ),
    # -- ale
    Fault(
        "a file overrules the command line",
        "ale/config.py",
        "given.insert(0, Layer(str(file), read_toml(file)))",
        "given.append(Layer(str(file), read_toml(file)))",
    ),
    Fault(
        "two failed rollouts differ in their reward",
        "ale/replay/comparing.py",
        "if mine != theirs and not (mine != mine and theirs != theirs):",
        "if mine != theirs:",
    ),
    Fault(
        "a loop is found a repetition late",
        "ale/replay/scanning.py",
        "count = count + 1 if now == seen else 1",
        "count = count + 1 if now == seen else 0",
    ),
    # -- sandboxes
    Fault(
        "the lake's right border leads to the next row",
        "sandboxes/frozen_lake/lake.py",
        "cell + 1 if column < size - 1 else cell",
        "cell + 1 if column < size else cell",
    ),
    Fault(
        "a player on a target hides it",
        "sandboxes/sokoban/level.py",
        'targets = level.count(".") + level.count("*") + level.count("+")',
        'targets = level.count(".") + level.count("*")',
    ),
    Fault(
        "an answer below zero is read as one above",
        "sandboxes/math/verify.py",
        'sign = -1 if value[0] == "-" else 1',
        "sign = 1",
    ),
)

TESTS = {
    "rock_env": ("tests/unit/rock_env/server", "tests/contract/test_sandbox_lifecycle_service.py"),
    "rock_env/backends": ("tests/unit/rock_env/backends", "tests/contract/test_sandbox_backend.py"),
    "rock_env/backends/docker": (
        "tests/unit/rock_env/backends/test_docker_parts.py",
        "tests/integration/docker",
    ),
    "rock_env/client": ("tests/unit/rock_env/test_client_retry.py", "tests/contract/test_sandbox_client.py"),
    "rock_env/grading": ("tests/unit/rock_env/grading", "tests/contract/test_grading.py"),
    "rock_env/guest": ("tests/unit/rock_env/guest", "tests/contract/test_sandbox_behaviour.py"),
    "rock_env/server/replicas": ("tests/contract/test_replica_ends.py", "tests/integration/server"),
    "rock_env/server/rest": ("tests/contract/test_rest_routes.py", "tests/integration/rest"),
    "rock_env/store": ("tests/unit/rock_env/server/test_sandbox_store.py", "tests/contract/test_stores.py"),
    "agent_runtime": ("tests/unit/agent_runtime", "tests/integration/agents"),
    "trainer": ("tests/unit/trainer/test_checkpoint.py", "tests/integration/train"),
    "trainer/algo": ("tests/unit/trainer/algo",),
    "trainer/data": ("tests/unit/trainer/data",),
    "trainer/learners": ("tests/unit/trainer/learners",),
    "trainer/rollout": ("tests/unit/trainer/rollout",),
    "trainer/samplers": ("tests/unit/trainer/samplers", "tests/contract/test_engines.py"),
    "ale": ("tests/unit/ale",),
    "sandboxes": ("tests/unit/sandboxes", "tests/contract/test_envs.py"),
}
"""By folder of the product, the folders and files of tests that judge a fault in it; the longest folder counts."""


def main(names: list[str]) -> int:
    """Plant the faults of these names, or all; print what became of each. Return the exit code."""
    unknown = set(names) - {fault.name for fault in FAULTS}
    if unknown:
        sys.exit(
            f"no fault has the name {', '.join(map(repr, sorted(unknown)))}: FAULTS in {__file__} lists them."
        )
    chosen = [fault for fault in FAULTS if not names or fault.name in names]
    with tempfile.TemporaryDirectory(prefix="ale-faults-") as folder:
        copy = _copied(Path(folder) / "tree")
        caught = sum(_caught(fault, copy) for fault in chosen)
    print(f"{caught} of {len(chosen)} faults were caught")
    return int(len(chosen) - caught > (0 if names else MAY_SURVIVE))


def tests_of(file: str) -> tuple[str, ...]:
    """Return the tests that judge a fault in a file of the product."""
    return TESTS[max((folder for folder in TESTS if file.startswith(f"{folder}/")), key=len)]


def _copied(copy: Path) -> Path:
    """Make the copy, and check that it is what programs import. Return it."""
    copy.mkdir()
    packed = subprocess.run(["git", "archive", "HEAD"], cwd=ROOT, stdout=subprocess.PIPE, check=True).stdout
    subprocess.run(["tar", "-x", "-C", copy], input=packed, check=True)
    where = [sys.executable, "-c", "import rock_env; print(rock_env.__file__)"]
    found = subprocess.run(
        where, cwd="/", env=_environment(copy), stdout=subprocess.PIPE, text=True, check=True
    )
    if not Path(found.stdout.strip()).is_relative_to(copy):
        sys.exit(
            f"the copy is not what Python imports: got {found.stdout.strip()}, expected a file in {copy}."
        )
    return copy


def _caught(fault: Fault, copy: Path) -> bool:
    """Return whether tests fail with a fault and pass without it: those nearest to it, or each of those that it names."""
    judges = [(each,) for each in fault.each] or [tests_of(fault.file)]
    return all(_caught_by(tests, fault, copy) for tests in judges)


def _caught_by(tests: tuple[str, ...], fault: Fault, copy: Path) -> bool:
    """Plant one fault, run these tests until one fails, take the fault out and run that test again."""
    path, began = copy / fault.file, time.monotonic()
    sound = path.read_text()
    if sound.count(fault.old) != 1:
        sys.exit(
            f"{fault.file} holds {fault.old!r} {sound.count(fault.old)} times, expected once: mend FAULTS."
        )
    path.write_text(sound.replace(fault.old, fault.new))
    try:
        code = _pytest(copy, "-x", "--cache-clear", *tests)
    finally:
        path.write_text(sound)
    last = copy / ".pytest_cache/v/cache/lastfailed"
    failed = list(json.loads(last.read_text())) if code == 1 and last.is_file() else []
    caught = bool(failed) and _pytest(copy, *failed) == 0
    verdict = (
        "caught" if caught else "FAILS WITHOUT IT TOO" if failed else f"SURVIVED (pytest ended with {code})"
    )
    print(f"{verdict:>8}  {fault.name} ({fault.file}, {time.monotonic() - began:.0f} s)", flush=True)
    for test in failed:
        print(f"          {test}", flush=True)
    return caught


def _pytest(copy: Path, *arguments: str) -> int:
    """Run tests of `make test` in the copy; return pytest's exit code, or that of a kill after `_LIMIT_S`."""
    options = ["-q", "-m", "first", "-p", "no:randomly", f"--timeout={_TEST_S}"]
    command = [sys.executable, "-m", "pytest", *options, *arguments]
    log = copy.parent / "pytest.log"
    with log.open("wb") as out:
        run = subprocess.Popen(
            command, cwd=copy, env=_environment(copy), stdout=out, stderr=out, start_new_session=True
        )
        try:
            return run.wait(_LIMIT_S)
        except subprocess.TimeoutExpired:
            return -signal.SIGKILL
        finally:
            if run.poll() is None:
                os.killpg(run.pid, signal.SIGKILL)
                run.wait()


def _environment(copy: Path) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(copy), "OMP_NUM_THREADS": "1"}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
