"""What a box gets of the mirror: indices that lead to it alone, and files that came from upstream once."""

from __future__ import annotations

import asyncio
import hashlib
import io
import json
import lzma
import os
import re
import sys
import zipfile
from urllib.parse import urljoin, urlsplit

import pytest
from asking_packages import Asking, Opening

from rock_env.errors import FailedPrecondition
from rock_env.server.packages.mirror import PACKAGES, asks
from rock_env.spec import NetworkPolicy, SandboxSpec

CONTENT = os.urandom(200_000)


async def wheel(asking: Asking, name: str, tenant: str = "blue") -> bytes:
    """Install as pip does: the index, then the file it leads to."""
    page = await asking.get(f"pypi/simple/{name}/", tenant)
    assert page.status_code == 200, page.text
    link = re.search('href="([^"#]+)#sha256=([0-9a-f]{64})"', page.text)
    assert link is not None
    got = await asking.http.get(urljoin(str(page.url), link[1]))
    assert got.status_code == 200, got.text
    assert hashlib.sha256(got.content).hexdigest() == link[2]
    return got.content


async def get(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, path: str) -> bytes:
    """Ask on a connection that stays; httpx takes longer for it than the mirror."""
    writer.write(f"GET {path} HTTP/1.1\r\n\r\n".encode())
    head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
    assert head[0] == "HTTP/1.1 200 OK"
    [length] = [int(line.split()[1]) for line in head if line.startswith("Content-Length")]
    return await reader.readexactly(length)


async def test_sixty_four_boxes_that_install_the_same_twenty_packages_fetch_each_once(asking: Asking) -> None:
    names = [f"package{number}" for number in range(20)]
    for name in names:
        path = asking.upstream.add_pypi(name, name.encode() * 5000)
        asking.upstream.answers[path].slow_s = 0.2

    async def box(number: int) -> None:
        url = urlsplit(asking.mirror.url(f"tenant{number % 4}"))
        reader, writer = await asyncio.open_connection(url.hostname, url.port)
        for name in names[number % 20 :] + names[: number % 20]:
            page = await get(reader, writer, f"{url.path}/pypi/simple/{name}/")
            assert b"#sha256=" in page
            file = f"{url.path}/pypi/files/{name}/{name}-1.0-py3-none-any.whl"
            assert await get(reader, writer, file) == name.encode() * 5000
        writer.close()
        await writer.wait_closed()

    async with asyncio.TaskGroup() as boxes:
        for number in range(64):
            boxes.create_task(box(number))
    assert len(asking.upstream.asked) == 40
    assert set(asking.upstream.asked.values()) == {1}


async def test_what_pip_needs_to_know_of_a_file_is_passed_on(asking: Asking) -> None:
    metadata = b"Name: thing\n"
    about = {"sha256": hashlib.sha256(metadata).hexdigest()}
    path = asking.upstream.add_pypi(
        "thing",
        CONTENT,
        size=len(CONTENT),
        yanked="it <broke>",
        **{"requires-python": ">=3.8", "core-metadata": about},
    )
    asking.upstream.answers[f"{path}.metadata"] = type(asking.upstream.answers[path])(metadata)
    page = (await asking.get("pypi/simple/Thing/")).text
    assert 'data-requires-python="&gt;=3.8"' in page
    assert 'data-yanked="it &lt;broke&gt;"' in page
    got = await asking.get("pypi/files/thing/thing-1.0-py3-none-any.whl.metadata")
    assert got.content == metadata


async def test_pip_downloads_through_the_mirror(asking: Asking) -> None:
    wheel_of_nothing = await asyncio.to_thread(_wheel)
    asking.upstream.add_pypi("nothing", wheel_of_nothing)
    spec = asking.mirror.provide("blue", SandboxSpec(network=NetworkPolicy(enabled=True, allow=(PACKAGES,))))
    pip = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "pip", "--no-cache-dir", "download", "nothing"),
        *("--disable-pip-version-check", "--dest", str(asking.folder.parent / "got")),
        env={
            "PATH": os.environ["PATH"],
            "HOME": str(asking.folder.parent),
            "PIP_CONFIG_FILE": os.devnull,
            **dict(spec.env),
        },
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    said, _ = await pip.communicate()
    assert pip.returncode == 0, said.decode()
    assert (asking.folder.parent / "got" / "nothing-1.0-py3-none-any.whl").read_bytes() == wheel_of_nothing


def _wheel() -> bytes:
    about = "nothing-1.0.dist-info"
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as archive:
        archive.writestr(f"{about}/METADATA", "Metadata-Version: 2.1\nName: nothing\nVersion: 1.0\n")
        archive.writestr(f"{about}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{about}/RECORD", "")
    return made.getvalue()


@pytest.mark.parametrize("name", ["left-pad", "@scope/left-pad"])
async def test_npm_gets_versions_whose_archives_are_the_mirrors(asking: Asking, name: str) -> None:
    path = asking.upstream.add_npm(name, CONTENT)
    page = (await asking.get(f"npm/{name.replace('/', '%2f')}")).json()
    version = page["versions"]["1.0.0"]
    assert version["dependencies"] == {"left": "^1"}
    assert version["dist"]["tarball"] == f"{asking.mirror.url('blue')}/npm{path}"
    assert (await asking.http.get(version["dist"]["tarball"])).content == CONTENT
    green = (await asking.get(f"npm/{name}", "green")).json()["versions"]["1.0.0"]["dist"]["tarball"]
    assert green.startswith(asking.mirror.url("green"))
    assert set(asking.upstream.asked.values()) == {1}


@pytest.mark.parametrize("by_hash", [False, True])
async def test_apt_gets_the_release_its_lists_and_what_they_name(asking: Asking, by_hash: bool) -> None:
    path = asking.upstream.add_debian(CONTENT, by_hash=by_hash)
    folder = "debian/debian/dists/bookworm"
    early = await asking.get(f"debian/debian/{path}")
    assert early.status_code == 404
    assert "apt-get update" in early.text
    release = await asking.get(f"{folder}/InRelease")
    assert release.content == asking.upstream.answers["/debian/dists/bookworm/InRelease"].body
    packed = await asking.get(f"{folder}/main/binary-amd64/Packages.xz")
    assert b"Package: hello" in lzma.decompress(packed.content)
    digest = hashlib.sha256(packed.content).hexdigest()
    assert (await asking.get(f"{folder}/main/binary-amd64/by-hash/SHA256/{digest}")).content == packed.content
    quoted = path.replace("+", "%2b").replace("~", "%7e")  # as apt does
    assert (await asking.get(f"debian/debian/{quoted}")).content == CONTENT
    assert set(asking.upstream.asked.values()) == {1}


async def test_a_box_with_the_release_before_finds_its_lists(opening: Opening) -> None:
    async with opening(fresh_s=0.0) as asking:
        asking.upstream.add_debian(CONTENT, by_hash=True)
        folder = "debian/debian/dists/bookworm"
        former = (await asking.get(f"{folder}/main/binary-amd64/Packages")).content
        asking.upstream.add_debian(b"new" * 1000, by_hash=True)
        digest = hashlib.sha256(former).hexdigest()
        got = await asking.get(f"{folder}/main/binary-amd64/by-hash/SHA256/{digest}")
        assert got.content == former


async def test_what_was_fetched_outlives_the_server(opening: Opening) -> None:
    async with opening() as asking:
        path = asking.upstream.add_pypi("thing", CONTENT)
        deb = asking.upstream.add_debian(CONTENT[:1000])
        former = asking.mirror.url("blue").rpartition("/")[2]
        await wheel(asking, "thing")
        await asking.get("debian/debian/dists/bookworm/main/binary-amd64/Packages.xz")
        assert (await asking.get(f"debian/debian/{deb}")).status_code == 200
        with pytest.raises(FailedPrecondition, match="another server"):
            async with opening():
                pass
    async with opening() as asking:
        assert await wheel(asking, "thing") == CONTENT
        assert (await asking.get(f"debian/debian/{deb}")).content == CONTENT[:1000]
        assert asking.upstream.asked[path] == 1
        assert asking.mirror.url("blue").rpartition("/")[2] == former, "passes of durable boxes hold"


async def test_the_cache_forgets_what_nobody_asked_for_longest(opening: Opening) -> None:
    async with opening(gib=450_000 / (1 << 30)) as asking:
        for name in ("a", "b", "a", "c"):
            asking.upstream.add_pypi(name, name.encode() * 200_000)
            assert await wheel(asking, name) == name.encode() * 200_000
        assert sorted(path.read_bytes()[:1] for path in asking.kept) == [b"a", b"c"]
        assert await wheel(asking, "b") == b"b" * 200_000


async def test_a_spec_that_asks_for_packages_gets_one_port_and_the_variables(asking: Asking) -> None:
    plain = SandboxSpec(env=(("A", "1"),))
    assert asking.mirror.provide("blue", plain) is plain
    asked = SandboxSpec(
        env=(("A", "1"), ("PIP_DEFAULT_TIMEOUT", "5")),
        network=NetworkPolicy(enabled=True, allow=("203.0.113.0/24", PACKAGES)),
    )
    assert asks(asked)
    given = asking.mirror.provide("blue", asked)
    env = dict(given.env)
    address = asking.mirror.url("blue").split("/")[2]
    assert given.network.allow == ("203.0.113.0/24", address)
    assert (env["A"], env["PIP_DEFAULT_TIMEOUT"]) == ("1", "5")
    assert env["PIP_INDEX_URL"] == f"{asking.mirror.url('blue')}/pypi/simple/"
    assert env["npm_config_registry"] == f"{asking.mirror.url('blue')}/npm/"
    assert env["ROCK_DEBIAN_URL"] == f"{asking.mirror.url('blue')}/debian"
    assert not asks(given), "it can be given again, and stays as it is"
    json.dumps(given.env)
