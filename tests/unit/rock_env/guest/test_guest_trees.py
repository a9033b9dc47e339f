"""Links in trees: a tree comes out as it went in, and no tar stream gets anything made outside its folder."""

from __future__ import annotations

import asyncio
import errno
import io
import os
import shutil
import stat
import tarfile
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, aclosing
from pathlib import Path

import pytest
from bare_guest import bare_guest
from hypothesis import given, settings
from hypothesis import strategies as st

from rock_env.errors import InvalidArgument
from rock_env.guest_host.box import GuestBox

NAMES = ("a", "b", "c")
PATHS = st.lists(st.sampled_from(NAMES), min_size=1, max_size=3).map("/".join)
MODES = st.sampled_from([0o700, 0o755, 0o777, 0o2775])
Member = tuple[bytes, str, str]


class Trees:
    """One guest, whose working folder is looked at from outside."""

    def __init__(self, runner: asyncio.Runner, box: GuestBox, work: Path) -> None:
        self._runner, self._box, self.work = runner, box, work

    def upload(self, raw: bytes, to: str = "up") -> None:
        async def blocks() -> AsyncIterator[bytes]:
            yield raw

        self._runner.run(self._box.upload(to, blocks()))

    def download(self, path: str) -> bytes:
        async def act() -> bytes:
            async with aclosing(self._box.download(path)) as blocks:
                return b"".join([block async for block in blocks])

        return self._runner.run(act())

    def clear(self) -> None:
        for entry in self.work.iterdir():
            shutil.rmtree(entry)


@pytest.fixture(scope="module")
def trees(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Trees]:
    folder = tmp_path_factory.mktemp("trees")
    with asyncio.Runner() as runner:
        stack = AsyncExitStack()

        async def enter() -> GuestBox:
            guest = await stack.enter_async_context(bare_guest(folder))
            return guest.box(await guest.configured())

        yield Trees(runner, runner.run(enter()), folder / "work")
        runner.run(stack.aclose())


def tar_of(*members: Member) -> bytes:
    """Write members given as (type, name, link target or content)."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        for kind, name, text in members:
            info = tarfile.TarInfo(name)
            info.type, info.mode = kind, 0o755
            content = text.encode() if kind == tarfile.REGTYPE else b""
            info.size, info.linkname = len(content), "" if content else text
            tar.addfile(info, io.BytesIO(content))
    return out.getvalue()


def file(name: str, content: str = "new") -> Member:
    return tarfile.REGTYPE, name, content


def folder(name: str) -> Member:
    return tarfile.DIRTYPE, name, ""


def link(name: str, target: str) -> Member:
    return tarfile.SYMTYPE, name, target


def hard(name: str, target: str) -> Member:
    return tarfile.LNKTYPE, name, target


def seen(root: Path) -> dict[str, object]:
    """Describe everything below a folder: modes, contents, targets, and which names are one file."""
    found: dict[str, object] = {}
    first: dict[int, str] = {}
    for path in sorted(root.rglob("*")):
        name, status = str(path.relative_to(root)), path.lstat()
        if path.is_symlink():
            found[name] = (str(path.readlink()), int(status.st_mtime))
        elif path.is_dir():
            found[name] = stat.S_IMODE(status.st_mode)
        else:
            one = first.setdefault(status.st_ino, name)
            found[name] = (stat.S_IMODE(status.st_mode), path.read_bytes(), int(status.st_mtime), one)
    return found


def grow(root: Path, plan: list[tuple[str, str, int, str]]) -> None:
    """Make a tree; what a plan says that cannot be is left out."""
    root.mkdir()
    files: list[Path] = []
    for kind, name, mode, other in plan:
        path = root / name
        above = [
            root.joinpath(*path.relative_to(root).parts[:depth]) for depth in range(1, name.count("/") + 1)
        ]
        if os.path.lexists(path) or any(one.is_symlink() or one.is_file() for one in above):
            continue
        path.parent.mkdir(parents=True, exist_ok=True)
        if kind == "folder":
            path.mkdir()
            path.chmod(mode)
        elif kind == "link":
            path.symlink_to(os.path.relpath(root / other, path.parent))
        elif kind == "round":
            path.symlink_to(
                f"{path.parent.name}/{path.name}" if path.parent == root else f"../{path.parent.name}"
            )
        elif kind == "hard" and files:
            path.hardlink_to(files[mode % len(files)])
        else:
            path.write_text(other * mode)
            path.chmod(mode & 0o6777)
            files.append(path)


@settings(max_examples=30)
@given(
    st.lists(
        st.tuples(st.sampled_from(["file", "folder", "link", "round", "hard"]), PATHS, MODES, PATHS),
        max_size=12,
    )
)
def test_a_tree_comes_out_as_it_went_in(trees: Trees, plan: list[tuple[str, str, int, str]]) -> None:
    trees.clear()
    grow(trees.work / "old", plan)
    raw = trees.download("old")
    trees.upload(raw, "new")
    assert seen(trees.work / "new") == seen(trees.work / "old")
    trees.upload(raw, "new")  # over itself
    assert seen(trees.work / "new") == seen(trees.work / "old")


def _real(path: Path) -> str:
    """Return where a link leads; itself where it leads round, which `realpath` garbles."""
    try:
        path.stat()
    except OSError as error:
        if error.errno == errno.ELOOP:
            return str(path)
    return os.path.realpath(path)


PARTS = st.sampled_from([*NAMES, "..", ".", "out", ""])
TARGETS = st.lists(PARTS, min_size=1, max_size=4).map("/".join)
MEMBERS = st.one_of(
    st.builds(file, PATHS),
    st.builds(folder, PATHS),
    st.builds(link, PATHS, TARGETS),
    st.builds(hard, PATHS, TARGETS),
)


@settings(max_examples=80)
@given(st.lists(MEMBERS, max_size=8), st.booleans())
def test_no_stream_reaches_outside(trees: Trees, members: list[Member], existing: bool) -> None:
    trees.clear()
    root = trees.work / "x" / "up"
    root.mkdir(parents=True)
    (trees.work / "x" / "a").mkdir()
    (trees.work / "x" / "a" / "b").write_text("old")
    if existing:
        (root / "out").symlink_to("..")
    outside = {name: one for name, one in seen(trees.work).items() if not name.startswith("x/up")}
    try:
        trees.upload(tar_of(*members), "x/up")
        refused = False
    except InvalidArgument:
        refused = True
    assert {name: one for name, one in seen(trees.work).items() if not name.startswith("x/up")} == outside
    for path in root.rglob("*"):
        if path.is_symlink() and path != root / "out":
            real = _real(path)
            assert refused or real == str(root) or real.startswith(f"{root}/"), (path, real)
        elif path.is_file():
            assert path.read_text() != "old"


@pytest.mark.parametrize(
    ("members", "bad", "why"),
    [
        ([link("l", ".."), file("l/owned")], "l", "leads out"),
        ([folder("d"), link("d/l", ".."), file("d/l/owned")], "d/l/owned", "passes through 'l'"),
        ([folder("d"), link("d/one", ".."), link("d/two", "one/..")], "d/two", "leads out"),
        ([folder("d"), link("d/two", "one/.."), link("d/one", "..")], "d/two", "leads out"),
        ([folder("d"), link("l", "d"), link("x", "l/there/../.."), link("d/there", "..")], "x", "leads out"),
        ([link("l", "nowhere/../up")], "l", "leads out"),
        ([link("l", "/proc/self/root")], "l", "leads out"),
        ([link("l", "")], "l", "leads out"),
        ([link("l", "there/x")], "l", "leads out"),
        ([link("l", "m/there/x"), link("m", ".")], "l", "leads out"),
        ([file("l"), folder("d"), link("l", "d"), link("l", "there")], "l", "leads out"),
        ([hard("h", "../outside/secret")], "h", "is no file"),
        ([hard("h", "/etc/passwd")], "h", "is no file"),
        ([hard("h", "there/secret")], "h", "passes through 'there'"),
        ([hard("h", "older")], "h", "is no file"),
        ([link("l", "older"), hard("h", "l")], "h", "is no file"),
        ([hard("h", "absent/file")], "h", "is no file"),
        ([folder("d"), link("d", "older")], "d", "would replace a folder"),
        ([folder("d"), file("d")], "d", "would replace a folder"),
        ([link("l", "no/where"), folder("l")], "l", "would replace a folder"),
    ],
)
def test_links_that_lead_out_are_refused(trees: Trees, members: list[Member], bad: str, why: str) -> None:
    trees.clear()
    outside, root = trees.work / "outside", trees.work / "up"
    outside.mkdir()
    root.mkdir()
    (outside / "secret").write_text("secret")
    (root / "older").write_text("older")
    (root / "there").symlink_to(outside)
    with pytest.raises(InvalidArgument, match=why) as caught:
        trees.upload(tar_of(*members, file("later")))
    assert repr(bad) in str(caught.value)
    assert seen(outside).keys() == {"secret"}
    assert (outside / "secret").lstat().st_nlink == 1
    assert {path.name for path in trees.work.iterdir()} == {"outside", "up"}
    for path in root.rglob("*"):
        assert path == root / "there" or not os.path.realpath(path).startswith(str(outside)), path


def test_a_file_takes_the_place_of_a_link_and_is_not_written_through_it(trees: Trees) -> None:
    trees.clear()
    outside, root = trees.work / "outside", trees.work / "up"
    outside.mkdir()
    root.mkdir()
    (outside / "secret").write_text("secret")
    (root / "one").symlink_to("../outside/secret")
    (root / "two").symlink_to("../outside/secret")
    trees.upload(tar_of(file("one"), link("two", "one"), link("three", "two"), hard("four", "one")))
    assert (outside / "secret").read_text() == "secret"
    assert not (root / "one").is_symlink()
    assert (root / "three").read_text() == "new"
    assert (root / "four").stat().st_ino == (root / "one").stat().st_ino


def test_links_may_go_by_links_whatever_the_order(trees: Trees) -> None:
    trees.clear()
    members = [
        link("bin/tool", "../current/lib/../tool"),
        link("current", "versions/one"),
        folder("versions/one/lib"),
        file("versions/one/tool", "it"),
        link("versions/gone", "../missing"),
    ]
    for order in (members, members[::-1]):
        trees.upload(tar_of(*order), "up")
        assert (trees.work / "up/bin/tool").read_text() == "it"
        assert str((trees.work / "up/bin/tool").readlink()) == "../current/lib/../tool"
        trees.clear()


def with_number(fields: dict[str, str], **numbers: int) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as tar:
        tar.addfile(tarfile.TarInfo("first"))
        info = tarfile.TarInfo("odd")
        info.pax_headers = fields
        for name, number in numbers.items():
            setattr(info, name, number)
        tar.addfile(info, io.BytesIO(bytes(max(0, info.size))))
    return out.getvalue()


ODD = [
    {"size": "-1"},
    {"mtime": "nan"},
    {"mtime": "inf"},
    {"mtime": "-1e300"},
    {"uid": str(1 << 70)},
    {"gid": "9" * 4000},
]


@pytest.mark.parametrize("fields", ODD)
def test_numbers_that_no_file_has_are_refused(trees: Trees, fields: dict[str, str]) -> None:
    trees.clear()
    with pytest.raises(InvalidArgument, match="'odd' of the tar stream has"):
        trees.upload(with_number(fields))
    assert {path.name for path in (trees.work / "up").iterdir()} <= {"first"}


def test_a_member_of_two_sizes_is_refused(trees: Trees) -> None:
    trees.clear()
    head = tarfile.TarInfo("././@PaxHeader")
    head.type, head.size = tarfile.XGLTYPE, len(b"9 size=1\n")
    raw = head.tobuf(tarfile.USTAR_FORMAT) + b"9 size=1\n".ljust(512, b"\0") + with_number({}, size=600)
    with pytest.raises(InvalidArgument, match="two sizes"):
        trees.upload(raw)
