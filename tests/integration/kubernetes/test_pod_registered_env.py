"""An environment that a user registered from a Dockerfile, played in pods: its image goes by way of a registry."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from docker_engine import skip_without
from image_registry import LOG, running_registry
from integration.command_line import ale
from kubernetes_cluster import guest_image, namespace  # noqa: F401  fixtures

from rock_env.local import start_embedded
from rock_env.tasksets import registered

EXAMPLE = Path(__file__).parents[3] / "examples" / "06_own_dockerfile"


@pytest.fixture
def registry(tmp_path: Path) -> Iterator[str]:
    with running_registry(tmp_path) as address:
        yield address


@pytest.mark.timeout(240)
def test_a_registered_environment_is_played_in_pods(
    guest_image: str,  # noqa: F811
    namespace: str,  # noqa: F811
    registry: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    skip_without("debian:bookworm-slim")
    user, server = str(tmp_path / "user"), str(tmp_path / "server")

    def run(*words: str) -> str:
        done = ale(*words, cwd=tmp_path, timeout_s=120, ALE_HOME=user)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    run("env", "register", str(EXAMPLE), "--name", "mine", "--no-check")
    monkeypatch.setenv("ALE_HOME", server)
    backend = f"kubernetes:namespace={namespace},guest={guest_image},profile=image,reserved=0.05"
    with start_embedded([f"--backend={backend}"]) as rock:
        pushed = run("env", "push", "mine", "--rock", rock.address, "--images", registry)
        monkeypatch.setenv("ALE_HOME", user)
        (image_id,) = registered.find("mine").images
        image = f"{registry}/task-images:{image_id.removeprefix('sha256:')[:32]}"
        assert image in pushed
        subprocess.run(["docker", "rmi", image], check=True, capture_output=True)  # the node must pull it
        played = run("rollout", "--env", "mine", "--rock", rock.address, "--episodes", "1")
        assert "1 of 1 passed, 0 failed to run" in played, played
        asked = f'"(GET|HEAD) /v2/task-images/manifests/{image.rpartition(":")[2]} '
        assert re.search(asked, (tmp_path / LOG).read_text()), "the node did not ask for it"
    subprocess.run(["docker", "rmi", image], check=True, capture_output=True)
