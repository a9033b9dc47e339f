"""TLS and mTLS over real sockets, with certificates made on the spot: who is trusted, and that mistakes are named."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from secure_servers import OFFER, SERVER, make_certificates, serving, token

import rock_env
from rock_env.client import Client, Credentials, installations
from rock_env.errors import InvalidArgument, Unauthenticated, Unavailable


@pytest.fixture(scope="module")
def pki(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_certificates(tmp_path_factory.mktemp("pki"))


@dataclass(frozen=True)
class Tls:
    """A server with TLS, the certificates, and a token it takes."""

    address: str
    pki: Path
    token: str
    mutual: bool = False

    def credentials(self, ca: str = "ca.pem", client: str = "") -> Credentials:
        files = {"cert": f"{self.pki}/{client}.pem", "key": f"{self.pki}/{client}.key"} if client else {}
        return Credentials(self.token, f"{self.pki}/{ca}", **files)

    async def names(self, credentials: Credentials) -> list[str]:
        async with Client(self.address, credentials=credentials, retry_for_s=0) as client:
            return [env.name for env in await client.list_envs()]


@pytest.fixture(scope="module", params=["tls", "mtls"])
def tls(request: pytest.FixtureRequest, pki: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tls]:
    folder = tmp_path_factory.mktemp("tls")
    text = token(folder / "tokens.json", "blue", "env")
    options = [f"--tokens={folder}/tokens.json", f"--cert={pki}/server.pem", f"--key={pki}/server.key"]
    if request.param == "mtls":
        options.append(f"--client-ca={pki}/ca.pem")
    with serving([*SERVER, *options, *OFFER], folder) as (_, address):
        yield Tls(address, pki, text, mutual=request.param == "mtls")


async def test_tls_carries_tokens_and_mtls_asks_for_a_certificate_too(tls: Tls) -> None:
    assert tls.address.startswith("grpcs://127.0.0.1:")
    assert "toy" in await tls.names(tls.credentials(client="client"))
    for credentials in (tls.credentials(), tls.credentials(client="stranger")):
        if tls.mutual:
            with pytest.raises(Unavailable, match="not available"):
                await tls.names(credentials)
        else:
            assert "toy" in await tls.names(credentials)
    with pytest.raises(Unauthenticated, match="no API token"):
        await tls.names(
            Credentials("", f"{tls.pki}/ca.pem", f"{tls.pki}/client.pem", f"{tls.pki}/client.key")
        )


async def test_a_server_whose_certificate_is_not_trusted_gets_no_token(tls: Tls) -> None:
    with pytest.raises(Unavailable, match="CERTIFICATE_VERIFY_FAILED"):
        await tls.names(tls.credentials(ca="other-ca.pem", client="client"))
    with pytest.raises(Unavailable):
        await Tls(tls.address.replace("grpcs://", "grpc://"), tls.pki, tls.token).names(
            Credentials(tls.token)
        )


async def test_a_certificate_of_another_name_is_not_trusted(tls: Tls) -> None:
    port = tls.address.rpartition(":")[2]
    assert "toy" in await Tls(f"grpcs://localhost:{port}", tls.pki, tls.token).names(
        tls.credentials(client="client")
    )
    with pytest.raises(Unavailable):
        await Tls(f"grpcs://127.0.0.2:{port}", tls.pki, tls.token).names(tls.credentials(client="client"))


def test_the_synchronous_face_speaks_mtls(tls: Tls) -> None:
    with rock_env.connect(
        tls.address,
        token=tls.token,
        ca=tls.pki / "ca.pem",
        cert=tls.pki / "client.pem",
        key=tls.pki / "client.key",
    ) as connection:
        assert "index" in connection.make("toy").reset(1)[1]


def test_a_context_is_all_that_a_client_needs(
    tls: Tls, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    (tmp_path / "token").write_text(f"{tls.token}\n")
    files = {"ca": "ca.pem", "cert": "client.pem", "key": "client.key"}
    paths = {name: str(tls.pki / file) for name, file in files.items()}
    installations.add(
        "secure", installations.Installation(tls.address, token_file=str(tmp_path / "token"), **paths)
    )
    with rock_env.connect("secure") as connection:
        assert "index" in connection.make("toy").reset(1)[1]
    command = [sys.executable, "-m", "ale", "env", "play", "frozen_lake", "--rock", "secure"]
    played = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert played.returncode == 0, played.stderr


@pytest.mark.parametrize(
    ("cert", "key", "said"),
    [
        ("nothing.pem", "client.key", r"cannot read the certificate .*nothing\.pem'"),
        ("client.pem", "nothing.key", r"cannot read the key .*nothing\.key'"),
        ("client.pem", "server.key", "key values mismatch"),
        ("client.key", "client.pem", "cannot be used"),
        ("empty", "client.key", "cannot be used"),
        ("client.pem", "locked.key", "without a passphrase"),
    ],
)
async def test_files_that_cannot_work_are_named_at_once(pki: Path, cert: str, key: str, said: str) -> None:
    (pki / "empty").touch()
    words = ["pkcs8", "-topk8", "-in", "client.key", "-out", "locked.key", "-passout", "pass:secret"]
    assert await (await asyncio.create_subprocess_exec("openssl", *words, cwd=pki)).wait() == 0
    with pytest.raises(InvalidArgument, match=said):
        Credentials(ca=f"{pki}/ca.pem", cert=f"{pki}/{cert}", key=f"{pki}/{key}").channel(
            "grpcs://127.0.0.1:1"
        )


async def test_a_ca_that_is_none_is_named(pki: Path) -> None:
    for ca in ("nothing.pem", "ca.key"):
        with pytest.raises(InvalidArgument, match="CA"):
            Credentials(ca=f"{pki}/{ca}").channel("grpcs://127.0.0.1:1")


async def test_a_client_that_closed_connects_no_more() -> None:
    connections = 0

    async def hang_up(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        writer.close()

    async with await asyncio.start_server(hang_up, "127.0.0.1", 0) as listener:
        port = listener.sockets[0].getsockname()[1]
        async with Client(f"grpcs://127.0.0.1:{port}", credentials=Credentials(), retry_for_s=0) as client:
            with pytest.raises(Unavailable):
                await client.list_envs()
        await asyncio.sleep(0.5)  # what was on its way when it closed has come
        before = connections
        await asyncio.sleep(0.5)  # five times the first pause between attempts
        assert before
        assert connections == before
