"""An environment that a user registered from a Dockerfile, played in pods: its image goes by way of a registry."""

from __future__ import annotations

import re
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from docker_engine import skip_without
from integration.command_line import ale
from kubernetes_cluster import guest_image, namespace  # noqa: F401  fixtures

from rock_env import registered
from rock_env.local import start_embedded

EXAMPLE = Path(__file__).parents[3] / "examples" / "06_own_dockerfile"
CONFIG = """
version: 0.1
storage:
  filesystem:
    rootdirectory: {folder}
http:
  addr: 127.0.0.1:{port}
"""


@pytest.fixture
def registry(tmp_path: Path) -> Iterator[str]:
    """Run a registry on loopback, where engines pull without TLS."""
    if shutil.which("docker-registry") is None:
        pytest.skip("docker-registry is not installed (Debian: apt-get install docker-registry)")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    config = tmp_path / "registry.yml"
    config.write_text(CONFIG.format(folder=tmp_path / "images", port=port))
    with (tmp_path / "registry.log").open("w") as log:
        process = subprocess.Popen(["docker-registry", "serve", str(config)], stdout=log, stderr=log)
        try:
            until = time.monotonic() + 20
            while True:
                try:
                    socket.create_connection(("127.0.0.1", port)).close()
                    break
                except OSError:
                    assert time.monotonic() < until, (tmp_path / "registry.log").read_text()
                    time.sleep(0.05)
            yield f"127.0.0.1:{port}"
        finally:
            process.kill()
            process.wait()


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
        assert re.search(asked, (tmp_path / "registry.log").read_text()), "the node did not ask for it"
    subprocess.run(["docker", "rmi", image], check=True, capture_output=True)
