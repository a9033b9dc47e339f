"""The development container: what it runs exists, and its Python is one that the package takes."""

import json
import re
import subprocess
import tomllib
from pathlib import Path

from packaging.specifiers import SpecifierSet

ROOT = Path(__file__).parents[3]
CONTAINER = json.loads((ROOT / ".devcontainer/devcontainer.json").read_text())


def test_its_commands_are_targets_of_the_makefile() -> None:
    commands = [value for key, value in CONTAINER.items() if key.endswith("Command")]
    targets = [target for command in commands for target in re.findall(r"(?:^|&& )make (\S+)", command)]
    assert targets
    for target in targets:
        asked = subprocess.run(
            ["make", "--dry-run", "--always-make", target], cwd=ROOT, capture_output=True, text=True
        )
        assert asked.returncode == 0, asked.stderr


FOR_TESTS = {"conntrack", "docker-registry", "mmdebstrap", "postgresql", "socat"}


def test_it_installs_what_sandboxes_need_of_the_system() -> None:
    needed = re.search(r"^needed=\((.*)\)$", (ROOT / ".ci/run").read_text(), re.MULTILINE)
    assert needed is not None
    here = set(CONTAINER["onCreateCommand"].split())
    # Docker comes as a feature; the others serve tests alone, which skip without them.
    assert set(needed[1].split()) - here == {"docker.io", *FOR_TESTS}
    assert any("docker-in-docker" in feature for feature in CONTAINER["features"])


def test_its_python_is_one_that_the_package_takes() -> None:
    version = re.match(r"python:(\d+\.\d+)-", CONTAINER["image"])
    assert version is not None
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert version[1] in SpecifierSet(project["requires-python"])
