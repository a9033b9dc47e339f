"""Real servers behind tokens and TLS, and the certificates for them, made with the `openssl` command."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from rock_env.security.auth import new_token
from rock_env.security.token_file import add_token

TOYS = Path(__file__).parents[1] / "contract" / "toy_envs.py"
OFFER = [f"--env={TOYS}:TOY", f"--env={TOYS}:BOX"]
SERVER = ["rock_env.server", "--listen=127.0.0.1:0", "--workers=1", "--isolation=none", "--log-level=INFO"]
"""The words after `python -m` of a server that logs whom it refuses."""


def token(file: Path, tenant: str, *scopes: str, expires_at: float | None = None, now: float = 0.0) -> str:
    """Add a token to the file and return its text."""
    made, text = new_token(tenant, scopes, expires_at=expires_at, now=now)
    add_token(file, made)
    return text


@contextmanager
def serving(command: Sequence[str], folder: Path) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Run a server in a process group of its own; yield it and the address it printed. Its log is `folder/log`."""
    with (
        (folder / "log").open("w") as log,
        subprocess.Popen(
            [sys.executable, "-m", *command],
            cwd=folder,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            start_new_session=True,
        ) as server,
    ):
        try:
            assert server.stdout is not None
            address = server.stdout.readline().strip()
            assert address, (folder / "log").read_text()
            yield server, address
        finally:
            server.terminate()


def _openssl(folder: Path, *words: str) -> None:
    subprocess.run(["openssl", *words], cwd=folder, check=True, capture_output=True)


def make_certificates(folder: Path, *, address: str = "127.0.0.1") -> Path:
    """Make `ca`, `server` (for the address, and the Service `rock` of a namespace `rock`) and `client`, and beside them
    `other-ca` and its `stranger`.
    """
    if shutil.which("openssl") is None:
        pytest.skip("the openssl command is absent: TLS is NOT tested. Install openssl.")
    curve = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    for ca, names in {"ca": ["server", "client"], "other-ca": ["stranger"]}.items():
        _openssl(
            folder,
            *("req", "-x509", *curve, "-subj", f"/CN={ca}", "-days", "2"),
            *("-keyout", f"{ca}.key", "-out", f"{ca}.pem"),
        )
        for name in names:
            (folder / "extensions").write_text(
                f"subjectAltName=IP:{address},DNS:localhost,DNS:rock.rock.svc\n"
            )
            _openssl(
                folder, "req", *curve, "-subj", f"/CN={name}", "-keyout", f"{name}.key", "-out", f"{name}.csr"
            )
            _openssl(
                folder,
                *("x509", "-req", "-in", f"{name}.csr", "-CA", f"{ca}.pem", "-CAkey", f"{ca}.key"),
                *("-CAcreateserial", "-days", "2", "-extfile", "extensions", "-out", f"{name}.pem"),
            )
    return folder
