"""The real apt and npm, and the package mirror between them and an upstream of the test's own."""

from __future__ import annotations

import asyncio
import io
import json
import os
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from package_upstream import FakeUpstream

from rock_env.server.options import ServerOptions
from rock_env.server.packages.mirror import PACKAGES, PackageMirror, open_mirror
from rock_env.spec import NetworkPolicy, SandboxSpec

ASKS = SandboxSpec(network=NetworkPolicy(enabled=True, allow=(PACKAGES,)))


@pytest.fixture
async def upstream() -> AsyncIterator[FakeUpstream]:
    async with FakeUpstream().serving() as serving:
        yield serving


@pytest.fixture
async def mirror(upstream: FakeUpstream, tmp_path: Path) -> AsyncIterator[PackageMirror]:
    options = ServerOptions(
        packages="127.0.0.1:0",
        packages_cache=str(tmp_path / "cache"),
        packages_pypi=f"{upstream.url}/simple",
        packages_npm=upstream.url,
        packages_debian=upstream.url,
    )
    async with open_mirror(options) as opened:
        assert opened is not None
        yield opened


async def run(mirror: PackageMirror, folder: Path, *argv: str) -> str:
    """Run a client as a box would: with the variables that the mirror gives and no others."""
    env = {"PATH": os.environ["PATH"], "HOME": str(folder), **dict(mirror.provide("blue", ASKS).env)}
    process = await asyncio.create_subprocess_exec(
        *argv, cwd=folder, env=env, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    said = (await process.communicate())[0].decode()
    assert process.returncode == 0, said
    return said


async def test_npm_installs(mirror: PackageMirror, upstream: FakeUpstream, tmp_path: Path) -> None:
    if shutil.which("npm") is None:
        pytest.skip("npm is not installed (Debian: apt-get install npm)")
    archives = {}
    for name, needs in (("left", {}), ("@scope/right", {"left": "^1.0.0"})):
        about = {"name": name, "version": "1.0.0", "dependencies": needs}
        made = io.BytesIO()
        with tarfile.open(fileobj=made, mode="w:gz") as archive:
            member = tarfile.TarInfo("package/package.json")
            member.size = len(text := json.dumps(about).encode())
            archive.addfile(member, io.BytesIO(text))
        archives[name] = upstream.add_npm(name, made.getvalue(), dependencies=needs)
    await run(mirror, tmp_path, "npm", "install", "--no-fund", "@scope/right")
    for name in archives:
        kept = json.loads((tmp_path / "node_modules" / name / "package.json").read_text())
        assert kept["name"] == name
    shutil.rmtree(tmp_path / "node_modules")
    shutil.rmtree(tmp_path / ".npm")
    await run(mirror, tmp_path, "npm", "ci", "--no-fund")  # by its lock file
    assert {upstream.asked[path] for path in archives.values()} == {1}


async def test_apt_updates_and_downloads(
    mirror: PackageMirror, upstream: FakeUpstream, tmp_path: Path
) -> None:
    if missing := [tool for tool in ("apt-get", "dpkg-deb", "gpg", "gpgconf") if shutil.which(tool) is None]:
        pytest.skip(f"not installed: {', '.join(missing)} (Debian: apt-get install gnupg)")
    package = await asyncio.to_thread(_deb, tmp_path)
    with Signer() as signer:
        path = upstream.add_debian(package, by_hash=True, sign=signer.sign, more_lines=())
        signer.export(tmp_path / "key.gpg")
    for folder in ("lists/partial", "archives/partial", "empty"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "status").touch()
    env = dict(mirror.provide("blue", ASKS).env)
    signed = f"[signed-by={tmp_path}/key.gpg]"
    (tmp_path / "sources").write_text(f"deb {signed} {env['ROCK_DEBIAN_URL']}/debian bookworm main\n")
    settings = [
        f"Dir::Etc::sourcelist={tmp_path}/sources",
        f"Dir::Etc::sourceparts={tmp_path}/empty",
        f"Dir::Etc::parts={tmp_path}/empty",
        f"Dir::State::lists={tmp_path}/lists",
        f"Dir::State::status={tmp_path}/status",
        f"Dir::Cache={tmp_path}",
        "APT::Sandbox::User=root",
        "APT::Architecture=amd64",
        "Acquire::Languages=none",
        "Acquire::http::Proxy=DIRECT",
    ]
    options = [word for setting in settings for word in ("-o", setting)]
    await run(mirror, tmp_path, "apt-get", *options, "update")
    await run(mirror, tmp_path, "apt-get", *options, "download", "hello")
    got = await asyncio.to_thread(lambda: [each.read_bytes() for each in tmp_path.glob("hello_*.deb")])
    assert got == [package]
    assert upstream.asked[f"/debian/{path.replace('+', '%2B')}"] == 1


class Signer:
    """A key of its own, in a folder of its own; its agent ends with it."""

    def __enter__(self) -> Signer:
        self._home = tempfile.mkdtemp(prefix="rock-gpg-")  # short: a socket lies in it
        self._gpg("--quick-generate-key", "archive@example.org", "rsa2048", "sign", "never")
        return self

    def __exit__(self, *_: object) -> None:
        subprocess.run(["gpgconf", "--homedir", self._home, "--kill", "all"], check=True)
        shutil.rmtree(self._home, ignore_errors=True)

    def sign(self, text: str) -> bytes:
        return self._gpg("--clearsign", stdin=text.encode())

    def export(self, path: Path) -> None:
        path.write_bytes(self._gpg("--export"))

    def _gpg(self, *words: str, stdin: bytes = b"") -> bytes:
        own = ["gpg", "--homedir", self._home, "--batch", "--passphrase", "", "--pinentry-mode", "loopback"]
        return subprocess.run([*own, *words], input=stdin, check=True, capture_output=True).stdout


def _deb(folder: Path) -> bytes:
    tree = folder / "hello" / "DEBIAN"
    tree.mkdir(parents=True)
    (tree / "control").write_text(
        "Package: hello\nVersion: 2.10+b1~x\nArchitecture: amd64\nMaintainer: a <a@example.org>\nDescription: it\n"
    )
    subprocess.run(
        ["dpkg-deb", "--build", str(tree.parent), str(folder / "made.deb")], check=True, capture_output=True
    )
    return (folder / "made.deb").read_bytes()
