"""Whatever a box names and an upstream says: it is understood, or refused as it should be."""

from __future__ import annotations

import json
from pathlib import PurePosixPath

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rock_env.errors import InfraError, InvalidArgument, Unauthenticated
from rock_env.server.packages import npm, pypi
from rock_env.server.packages.debian_lists import read_release
from rock_env.server.packages.index import Index, Wanted, origin, segments, wanted
from rock_env.server.packages.passes import BoxPasses
from rock_env.server.packages.reply import Page

ORIGIN = "http://127.0.0.1:80"
HEX = st.text("0123456789abcdef", min_size=64, max_size=64)
NAMES = st.one_of(st.text(), st.sampled_from(["..", "a-1.whl", "%2e%2e", "a/b", "-", "@a", "a#b", "a?b"]))
URLS = st.one_of(
    NAMES, NAMES.map(lambda name: f"{ORIGIN}/{name}"), NAMES.map(lambda name: f"http://{name}/x")
)
ANY = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.text()),
    lambda inner: st.one_of(st.lists(inner), st.dictionaries(st.text(), inner)),
    max_leaves=5,
)


@given(st.one_of(st.text(), st.lists(st.sampled_from([*"/.%2efa-@\\", "..", "pypi", "%00"])).map("".join)))
def test_a_path_is_refused_or_stays_below_where_it_is_joined(path: str) -> None:
    try:
        names = segments(path)
    except InvalidArgument:
        return
    joined = PurePosixPath("/cache").joinpath(*names)
    assert joined.parts == ("/", "cache", *names)
    assert not {"", ".", ".."} & set(names)
    assert all(name.isascii() and name.isprintable() for name in names)


def check(index: Index) -> None:
    assert all(origin(file.url) == ORIGIN for file in index.files.values())
    assert all(segments(name) == name.split("/") for name in index.files)


@given(
    st.one_of(
        ANY,
        st.builds(
            lambda *files: {"files": list(files)},
            st.fixed_dictionaries(
                {
                    "filename": NAMES,
                    "url": URLS,
                    "hashes": st.dictionaries(st.sampled_from(["sha256", "md5"]), HEX),
                },
                optional={"size": st.one_of(ANY, st.integers()), "yanked": st.text(), "core-metadata": ANY},
            ),
        ),
    )
)
def test_any_index_of_pypi_is_read_or_refused(value: object) -> None:
    try:
        index = pypi._read(json.dumps(value).encode(), f"{ORIGIN}/simple/a/", "a", [ORIGIN])
    except InfraError:
        return
    check(index)
    assert index.page.count(b"<a ") <= 1


@given(
    st.one_of(
        ANY,
        st.builds(
            lambda url, integrity, more: {
                "versions": {"1": {**more, "dist": {"tarball": url, "integrity": integrity}}}
            },
            URLS,
            st.one_of(st.text(), st.just("sha512-" + "A" * 86 + "==")),
            st.dictionaries(st.text(), ANY),
        ),
    )
)
def test_any_index_of_npm_is_read_or_refused(value: object) -> None:
    try:
        index = npm._read(json.dumps(value).encode(), "a", [ORIGIN])
    except InfraError:
        return
    check(index)
    page = Page(index.page, index.kind, npm._BASE.encode(), b"http://mirror/")
    sent = json.loads(b"".join(page.blocks(7)))
    assert all(each["dist"]["tarball"].startswith("http://mirror/a/-/") for each in sent["versions"].values())


@given(
    st.lists(st.one_of(st.text(), st.builds("{} {} {}".format, HEX, st.integers(), NAMES).map(" {}".format)))
)
def test_any_release_is_read_or_refused(lines: list[str]) -> None:
    text = "\n".join(["SHA256:", *lines, "-----END PGP SIGNATURE-----", ""]).encode(errors="replace")
    folder = f"{ORIGIN}/debian/dists/bookworm"
    files = read_release(text, folder, (ORIGIN,))
    check(Index(text, "", files))
    with pytest.raises(InfraError):
        read_release(text[:-10], folder, (ORIGIN,))


@given(st.binary(max_size=300), st.integers(1, 50), st.binary(max_size=30))
def test_a_page_is_sent_whole_whatever_the_size_of_its_blocks(
    content: bytes, block: int, base: bytes
) -> None:
    stands = b"rock-0123456789:"
    page = Page(stands.join([content, content, b""]), "", stands, base)
    sent = b"".join(page.blocks(block))
    assert sent == page.content.replace(stands, base)
    assert len(sent) == page.size()


@given(st.text())
def test_nobody_makes_a_pass(shown: str) -> None:
    with pytest.raises(Unauthenticated):
        BoxPasses(b"secret").tenant(shown)
    assert BoxPasses(b"secret").tenant(BoxPasses(b"secret").of("blue.1")) == "blue.1"
    assert BoxPasses(b"secret").tenant(BoxPasses(b"secret").of("")) == ""


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1:80@evil/",
        "http://127.0.0.1:81/",
        "https://127.0.0.1:80/",
        "http://127.0.0.1\\@evil/",
        "http://[::1",
        "http://127.0.0.1:99999/",
        "http:///x",
        "//127.0.0.1/x",
        "http://127.0.0.1/x\r\nHost: evil",
        "http://127.0.0.1/x#y",
        "http://127.0.0.1/ü",
    ],
)
def test_an_address_beside_the_origin_is_none(url: str) -> None:
    assert wanted(url, {"sha256": "0" * 64}, None, [ORIGIN]) is None
    assert wanted(url, {"sha256": "0" * 64}, None, [origin("http://me:secret@127.0.0.1/")]) is None
    assert wanted("http://127.0.0.1/x", {"sha256": "0" * 64}, None, [ORIGIN]) == Wanted(
        "http://127.0.0.1/x", "sha256", "0" * 64
    )
