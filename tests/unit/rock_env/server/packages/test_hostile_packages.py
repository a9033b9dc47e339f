"""Upstreams that fail or lie, and boxes that ask for what is not theirs."""

from __future__ import annotations

import asyncio
import hashlib
import lzma
import os
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from asking_packages import Asking, Opening
from package_upstream import Answer, FakeUpstream, no_signature
from waiting import until

CONTENT = os.urandom(100_000)
FILE = "pypi/files/thing/thing-1.0-py3-none-any.whl"


async def refused(asking: Asking, path: str = FILE) -> int:
    """Ask, see that it is refused and that nothing of it is kept; return the status."""
    got = await asking.get(path)
    assert got.status_code >= 400
    assert CONTENT[:100] not in got.content
    assert not asking.kept
    return got.status_code


async def test_a_file_with_another_digest_than_its_index_says_is_refused_and_not_kept(asking: Asking) -> None:
    path = asking.upstream.add_pypi("thing", CONTENT, digest="1" * 64)
    assert await refused(asking) == 502
    archive = asking.upstream.add_npm("thing", CONTENT, digest=b"1" * 64)
    assert await refused(asking, f"npm{archive}") == 502
    package = asking.upstream.add_debian(CONTENT, digest="1" * 64)
    await asking.get("debian/debian/dists/bookworm/main/binary-amd64/Packages.xz")
    [listed] = asking.kept
    assert (await asking.get(f"debian/debian/{package}")).status_code == 502
    assert asking.kept == [listed]
    assert await asking.get(FILE)
    assert asking.upstream.asked[path] == 2, "it is asked for anew"


async def test_a_list_that_is_not_what_the_release_says_is_refused(asking: Asking) -> None:
    package = asking.upstream.add_debian(CONTENT)
    folder = "debian/dists/bookworm/main/binary-amd64"
    poisoned = asking.upstream.answers[f"/{folder}/Packages"]
    asking.upstream.answers[f"/{folder}/Packages"] = Answer(poisoned.body.replace(b"hello", b"hallo"))
    assert await refused(asking, f"debian/{folder}/Packages") == 502
    assert (await asking.get(f"debian/debian/{package}")).status_code == 404


@pytest.mark.parametrize(
    "packed", [b"no xz", lzma.compress(bytes(50_000_000)), lzma.compress(b"Package: hello\n\n" * 1000)[:-20]]
)
async def test_a_list_that_cannot_be_unpacked_is_refused(asking: Asking, packed: bytes) -> None:
    folder = "debian/dists/bookworm"
    sha256 = hashlib.sha256(packed).hexdigest()
    listed = f"SHA256:\n {sha256} {len(packed)} main/binary-amd64/Packages.xz\n"
    asking.upstream.answers[f"/{folder}/InRelease"] = Answer(no_signature(listed))
    asking.upstream.answers[f"/{folder}/main/binary-amd64/Packages.xz"] = Answer(packed)
    got = await asking.get(f"debian/{folder}/main/binary-amd64/Packages.xz")
    assert got.status_code == 502
    assert "cannot be read" in got.text


async def test_a_damaged_table_of_packages_is_made_anew(opening: Opening) -> None:
    for _ in range(2):
        async with opening() as asking:
            package = asking.upstream.add_debian(CONTENT)
            await asking.get("debian/debian/dists/bookworm/main/binary-amd64/Packages.xz")
            assert (await asking.get(f"debian/debian/{package}")).content == CONTENT
        (asking.folder / "debian.db").write_bytes(os.urandom(10_000))


@pytest.mark.parametrize(
    "change",
    [
        {"sends": 50_000},
        {"sends": 0},
        {"no_length": True},
        {"no_length": True, "headers": "Transfer-Encoding: chunked\r\n", "body": b"5\r\nhello\r\n"},
        {"headers": "Content-Encoding: gzip\r\n"},
        {"status": 302, "headers": "Location: http://127.0.0.1:1/\r\n"},
        {"status": 206},
        {"status": 500},
        {"status": 404},
        {"body": CONTENT + b"more"},
    ],
)
async def test_a_truncated_or_odd_answer_is_refused_and_not_kept(
    asking: Asking, change: dict[str, object]
) -> None:
    path = asking.upstream.add_pypi("thing", CONTENT, size=len(CONTENT))
    good = asking.upstream.answers[path]
    asking.upstream.answers[path] = Answer(**{"body": CONTENT, **change})  # type: ignore[arg-type]
    assert await refused(asking) in (404, 502, 503)
    asking.upstream.answers[path] = good
    assert (await asking.get(FILE)).content == CONTENT


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b'{"files": 3}',
        b'{"files": [{"filename": 1}]}',
        b"[" * 100_000,
        b"\xff\xfe",
        b"null",
    ],
)
async def test_an_index_that_cannot_be_read_is_refused(asking: Asking, body: bytes) -> None:
    for path in ("/simple/thing/", "/thing", "/debian/dists/bookworm/InRelease"):
        asking.upstream.answers[path] = Answer(body)
    for path in ("pypi/simple/thing/", "npm/thing", "debian/debian/dists/bookworm/InRelease"):
        assert await refused(asking, path) == 502


async def test_an_index_leads_nowhere_but_to_its_upstream(asking: Asking) -> None:
    async with FakeUpstream().serving() as other:
        other.answers["/evil"] = Answer(CONTENT)
        digest = hashlib.sha256(CONTENT).hexdigest()
        user = asking.upstream.url.replace("//", "//user@")
        for url in (
            f"{other.url}/evil",
            "file:///etc/passwd",
            "http://[bad",
            f"{user}/evil",
            "//169.254.169.254/x",
        ):
            asking.upstream.add_pypi("thing", CONTENT, url=url, digest=digest)
            assert await refused(asking) == 404
            asking.mirror._sources["pypi"]._store._indices.clear()  # type: ignore[attr-defined]
        asking.upstream.add_npm("thing", CONTENT, tarball=f"{other.url}/evil")
        assert (await asking.get("npm/thing")).json()["versions"] == {}
        assert not other.asked


async def test_a_slow_upstream_is_given_up_and_holds_up_nobody_else(opening: Opening) -> None:
    async with opening(stall_s=0.5, fetches=2) as asking:
        path = asking.upstream.add_pypi("thing", CONTENT)
        asking.upstream.answers[path].slow_s = 30.0
        asking.upstream.add_pypi("other", b"other")
        slow = asyncio.ensure_future(asking.get(FILE))
        got = await asking.get(FILE.replace("thing", "other"), "green")
        assert got.content == b"other"
        assert not slow.done()
        assert (await slow).status_code == 503


async def test_nobody_waits_for_what_another_tenant_has_queued(opening: Opening) -> None:
    async with opening(fetches=1) as asking:
        asking.upstream.add_pypi("slow", CONTENT)
        asking.upstream.answers["/simple/slow/"].slow_s = 3600.0
        path = asking.upstream.add_pypi("thing", CONTENT)
        slow = asyncio.ensure_future(asking.get("pypi/simple/slow/"))
        await asking.upstream.was_asked.wait()
        queued = [asyncio.ensure_future(asking.get(FILE)) for _ in range(3)]
        await until(
            lambda: (
                len(asking.mirror._bounds._tenants) == 1
                and asking.mirror._bounds._tenants["blue"].requests == 4
            )
        )
        assert (await asking.get(FILE, "green")).content == CONTENT
        assert [(await one).content for one in queued] == [CONTENT] * 3
        assert asking.upstream.asked[path] == 1
        slow.cancel()


async def test_a_fetch_goes_on_when_its_first_asker_hangs_up(asking: Asking) -> None:
    path = asking.upstream.add_pypi("thing", CONTENT)
    asking.upstream.answers[path].slow_s = 0.5
    await asking.get("pypi/simple/thing/")
    asking.upstream.was_asked.clear()
    first = asyncio.ensure_future(asking.get(FILE))
    await asking.upstream.was_asked.wait()
    first.cancel()
    assert (await asking.get(FILE)).content == CONTENT
    assert asking.upstream.asked[path] == 1


async def test_a_file_larger_than_may_be_is_refused(opening: Opening) -> None:
    async with opening(file_bytes=50_000, index_bytes=5000) as asking:
        asking.upstream.add_pypi("thing", CONTENT)
        assert await refused(asking) == 502
        asking.upstream.add_pypi("told", CONTENT, size=len(CONTENT))
        assert await refused(asking, FILE.replace("thing", "told")) == 502
        asking.upstream.answers["/simple/big/"] = Answer(b" " * 5001)
        assert await refused(asking, "pypi/simple/big/") == 502


async def test_no_more_comes_at_once_than_may_be_kept(opening: Opening) -> None:
    async with opening(gib=150_000 / (1 << 30)) as asking:
        asking.upstream.add_pypi("thing", CONTENT * 2)
        assert await refused(asking) == 429
        asking.upstream.add_pypi("other", CONTENT)
        assert (await asking.get(FILE.replace("thing", "other"))).content == CONTENT


async def test_a_tenant_has_so_many_fetches_and_bytes_in_an_hour(opening: Opening) -> None:
    async with opening(hourly_fetches=4) as asking:
        for name in ("a", "b", "c"):
            asking.upstream.add_pypi(name, CONTENT + name.encode())
        statuses = [
            (await asking.get(f"pypi/files/{name}/{name}-1.0-py3-none-any.whl")).status_code for name in "abc"
        ]
        assert statuses == [200, 200, 429]
        assert (await asking.get("pypi/files/a/a-1.0-py3-none-any.whl")).status_code == 200, (
            "what is kept is free"
        )
        assert (await asking.get("pypi/files/c/c-1.0-py3-none-any.whl", "green")).status_code == 200
    async with opening(hourly_bytes=100) as asking:
        asking.upstream.add_pypi("d", CONTENT)
        got = await asking.get("pypi/files/d/d-1.0-py3-none-any.whl")
        assert got.status_code == 429
        assert int(got.headers["retry-after"]) > 3000


async def test_a_tenant_has_so_many_requests_at_once(opening: Opening) -> None:
    async with opening(requests=2) as asking:
        path = asking.upstream.add_pypi("thing", CONTENT)
        asking.upstream.answers[path].slow_s = 0.5
        got = await asyncio.gather(*(asking.get(FILE) for _ in range(4)))
        assert sorted(one.status_code for one in got) == [200, 200, 429, 429]
        assert (await asking.get(FILE)).status_code == 200


async def raw(asking: Asking, request: bytes) -> bytes:
    host, _, port = urlsplit(asking.mirror.url("blue")).netloc.partition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(request)
    try:
        return await reader.read()
    except ConnectionError:
        return b""
    finally:
        writer.close()


PATHS = [
    "pypi/simple/../../../etc/passwd",
    "pypi/simple/%2e%2e/",
    "pypi/files/thing/..%2f..%2fsecret",
    "pypi/files/thing/%2fetc%2fpasswd",
    "pypi/simple/thing%00/",
    "pypi/simple/th\\ing/",
    "pypi/simple/http:%2f%2f169.254.169.254/",
    "pypi/simple/" + "a" * 2000,
    "pypi/" + "a/" * 200,
    "pypi//simple/thing/",
    "debian/debian/dists/../../secret",
    "debian/debian/pool/../../secret",
    "debian/debian/dists/bookworm/../../../files",
    "debian/debian/dists/bookworm/main/binary-amd64/by-hash/SHA256/" + "0" * 64,
    "debian/secret",
    "npm/@scope/../thing",
    "npm/thing/-/.secret",
    "npm/-/v1/search",
    "npm/-",
    "secret",
    "",
    "%ff%fe",
]


@pytest.mark.parametrize("path", PATHS)
async def test_no_path_leads_out(asking: Asking, path: str) -> None:
    asking.upstream.add_debian(CONTENT)
    shown = urlsplit(asking.mirror.url("blue")).path
    got = await raw(asking, f"GET {shown}/{path} HTTP/1.1\r\nConnection: close\r\n\r\n".encode())
    assert got.split(b" ")[1] in (b"400", b"404")
    assert all(".." not in asked and "169" not in asked for asked in asking.upstream.asked)


@pytest.mark.parametrize(
    ("request_head", "status"),
    [
        ("CONNECT 127.0.0.1:22 HTTP/1.1\r\n\r\n", b"405"),
        ("POST {path}/pypi/simple/thing/ HTTP/1.1\r\nContent-Length: 5\r\n\r\nhello", b"405"),
        ("GET http://169.254.169.254/latest HTTP/1.1\r\n\r\n", b"400"),
        ("GET {path}/pypi/simple/thing/ HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n", b"400"),
        ("GET {path}/pypi/simple/thing/ HTTP/1.1\r\nContent-Length: 9\r\n\r\n", b"400"),
        ("GET {path}/pypi/simple/thing/ HTTP/2\r\n\r\n", b"400"),
        ("GET\r\n\r\n", b"400"),
        ("GET {path} " + "x" * 20_000 + "\r\n\r\n", b"400"),
        ("GET /pypi/simple/thing/ HTTP/1.1\r\nConnection: close\r\n\r\n", b"401"),
        ("GET /" + "0" * 32 + "-blue/pypi/simple/thing/ HTTP/1.1\r\nConnection: close\r\n\r\n", b"401"),
        ("GET {green}/pypi/simple/thing/ HTTP/1.1\r\nConnection: close\r\n\r\n", b"401"),
        ("\x16\x03\x01\x02\x00\r\n\r\n", b"400"),
    ],
)
async def test_it_is_no_proxy_and_answers_nobody_without_a_pass(
    asking: Asking, request_head: str, status: bytes
) -> None:
    asking.upstream.add_pypi("thing", CONTENT)
    path = urlsplit(asking.mirror.url("blue")).path
    green = path.replace("blue", "green")  # a tenant cannot make another's
    got = await raw(asking, request_head.format(path=path, green=green).encode("latin-1"))
    assert got.split(b" ")[1] == status
    assert not asking.upstream.asked


async def test_who_says_nothing_or_reads_nothing_is_cut_off(opening: Opening) -> None:
    async with opening(head_s=0.3, request_s=1.0, stall_s=0.3, connections=3) as asking:
        assert await raw(asking, b"GET /") == b""
        asking.upstream.add_pypi("thing", os.urandom(30_000_000))
        assert (await asking.http.head(f"{asking.mirror.url('blue')}/{FILE}")).headers[
            "content-length"
        ] == "30000000"
        await asking.http.aclose()
        host, _, port = urlsplit(asking.mirror.url("blue")).netloc.partition(":")
        path = urlsplit(asking.mirror.url("blue")).path
        reader, writer = await asyncio.open_connection(host, int(port), limit=1024)
        writer.write(f"GET {path}/{FILE} HTTP/1.1\r\n\r\n".encode())
        await asyncio.sleep(2.0)
        with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
            await reader.readexactly(30_000_000)
        writer.close()


async def test_an_address_has_so_many_connections(opening: Opening) -> None:
    async with opening(connections=3) as asking:
        host, _, port = urlsplit(asking.mirror.url("blue")).netloc.partition(":")
        opened = [await asyncio.open_connection(host, int(port)) for _ in range(3)]
        await asyncio.sleep(0.1)
        assert await raw(asking, b"GET / HTTP/1.1\r\nConnection: close\r\n\r\n") == b""
        for _, writer in opened:
            writer.close()
        await asyncio.sleep(0.1)
        assert b"401" in await raw(asking, b"GET / HTTP/1.1\r\nConnection: close\r\n\r\n")


async def test_the_cache_is_its_owners_alone(asking: Asking) -> None:
    def mode(path: Path) -> int:
        return path.stat().st_mode & 0o777

    assert mode(asking.folder) == 0o700
    assert mode(asking.folder / "secret") == 0o600
