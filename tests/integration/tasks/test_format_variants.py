"""One miniature task for each variant of the formats that is in use, played in a container as it was published.

What a variant says is in the texts below; a variant that cannot be honoured is refused, which the readers' own tests hold.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from docker_engine import engine  # noqa: F401  fixture
from foreign_tasks import Played, bases, serving  # noqa: F401  bases is a fixture

from rock_env.grading.model import Task
from rock_env.tasksets.detect import read_tasks

DOCKERFILE = "FROM debian:bookworm-slim\nWORKDIR /app\n"
RUN = """\
{test} && word=PASSED || word=FAILED
echo "=== short test summary info ==="
echo "$word tests/test_it.py::test_it"
echo "=== 1 in 0.01s ==="
"""
SWEBENCH = """\
{test} && word=PASSED || word=FAILED
echo SWEBench results starts here
echo $word
echo SWEBench results ends here
"""
COMPOSE = """\
services:
  client:
    build: {{dockerfile: Dockerfile}}
    command: [sh, -c, sleep infinity]
{more}
"""

Files = dict[str, str]


def terminal(yaml: str, test: str, solution: str, *, script: str = RUN, more: str = "") -> Files:
    parser = "swebench" if script is SWEBENCH else "pytest"
    files = {
        "task.yaml": f"parser_name: {parser}\n{yaml}",
        "Dockerfile": DOCKERFILE,
        "run-tests.sh": f"#!/bin/sh\n{script.format(test=test)}",
        "tests/test_it.py": "",
        "solution.sh": f"#!/bin/sh\n{solution}\n",
    }
    return {**files, "docker-compose.yaml": COMPOSE.format(more=more)} if more else files


def harbor(toml: str, test: str, solution: str) -> Files:
    return {
        "task.toml": f'schema_version = "1.4"\n{toml}',
        "instruction.md": "Do it.\n",
        "environment/Dockerfile": DOCKERFILE,
        "tests/test.sh": f"#!/bin/sh\n{test}\n",
        "solution/solve.sh": f"#!/bin/sh\n{solution}\n",
    }


TEXT_REWARD = "mkdir -p /logs/verifier; if {test}; then echo 1; else echo 0; fi > /logs/verifier/reward.txt"
JSON_REWARD = (
    "mkdir -p /logs/verifier; if {test}; then n=1; else n=0; fi; "
    "printf '{{\"reward\": %s}}' $n > /logs/verifier/reward.json"
)
SAYS = "instruction: Do it.\n"
VARIANTS: dict[str, Files] = {
    "tb-same-shell": terminal(
        f"{SAYS}run_tests_in_same_shell: true\n", '[ "$WORD" = plum ]', "export WORD=plum"
    ),
    "tb-parser-swebench": terminal(f"{SAYS}", "[ -s /app/done ]", "echo yes > /app/done", script=SWEBENCH),
    "tb-descriptions": terminal(
        "descriptions:\n- {key: hard, description: Guess.}\n- {key: base, description: Do it so.}\n",
        "[ -s /app/done ]",
        "echo yes > /app/done",
    ),
    "tb-labels": terminal(
        f"{SAYS}language: sh\nenv_name: plain\nauthor_name: a\ndisable_asciinema: true\n",
        "[ -s /app/done ]",
        "echo yes > /app/done",
    ),
    "tb-tmpfs": terminal(
        SAYS, "[ -s /scratch/done ]", "echo yes > /scratch/done", more="    tmpfs: [/scratch]\n"
    ),
    "tb-variables": terminal(
        SAYS,
        '[ "$(cat /app/done)" = "$PLACE" ]',
        'echo "$PLACE" > /app/done',
        more="    environment: {PLACE: here}\n    working_dir: /app\n    tty: true\n",
    ),
    "hb-reward-text": harbor("", TEXT_REWARD.format(test="[ -s /app/done ]"), "echo yes > /app/done"),
    "hb-reward-json": harbor("", JSON_REWARD.format(test="[ -s /app/done ]"), "echo yes > /app/done"),
    "hb-workdir-and-variables": harbor(
        '[environment]\nworkdir = "/srv"\n[environment.env]\nPLACE = "here"\n[verifier.env]\nASKED = "here"\n',
        TEXT_REWARD.format(test='[ "$(cat /srv/done)" = "$ASKED" ]'),
        'echo "$PLACE" > done',
    ),
    "hb-healthcheck": harbor(
        '[environment.healthcheck]\ncommand = "test -d /app"\n',
        TEXT_REWARD.format(test="[ -s /app/done ]"),
        "echo yes > /app/done",
    ),
}
NAMES = tuple(VARIANTS)
TYPED = {"tb-same-shell": ["bash export WORD=plum"]}
"""Where the shell itself is what is left: a script of a solution has one of its own."""


def laid_out(folder: Path) -> list[Task]:
    for name, files in VARIANTS.items():
        for path, content in files.items():
            place = folder / name / path
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(content)
    return list(read_tasks(folder))


async def play_all(folder: Path) -> dict[str, tuple[Played, Played]]:
    tasks = await asyncio.to_thread(laid_out, folder / "tasks")
    async with serving(tasks, folder) as foreign:

        async def both(name: str) -> tuple[Played, Played]:
            typed = name in TYPED
            solved = await (foreign.play(name, TYPED[name]) if typed else foreign.solve(name))
            return solved, await foreign.play(name)

        played = await asyncio.gather(*map(both, NAMES))
    return dict(zip(NAMES, played, strict=True))


@pytest.fixture(scope="module")
def played(bases: None, tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Played, Played]]:  # noqa: F811
    return asyncio.run(play_all(tmp_path_factory.mktemp("variants")))


@pytest.mark.parametrize("name", NAMES)
def test_each_variant_is_won_by_its_solution_alone(
    name: str, played: dict[str, tuple[Played, Played]]
) -> None:
    solved, idle = played[name]
    assert (solved.verdict.reward, solved.verdict.passed) == (1.0, True), solved
    assert (idle.verdict.reward, idle.verdict.passed) == (0.0, False), idle
