"""Which images a Dockerfile names, and that nothing hides one from whoever asks."""

from __future__ import annotations

import io
import tarfile

import pytest

from rock_env.errors import InvalidArgument
from rock_env.server.images.context import BuildContext
from rock_env.server.images.dockerfile import MOST_IMAGES, needs_of, needs_of_triggers

THEIRS = "deadbeef0123"


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("FROM debian:12", {"debian:12"}),
        ("from debian", {"debian"}),
        ("\ufeff# syntax=docker/dockerfile:1\n\n  FROM debian\r\n", {"debian"}),
        ("FROM scratch\nCOPY a /", set()),
        ("FROM a AS one\nFROM one\nCOPY --from=ONE / /\nCOPY --from=0 / /", {"a"}),
        ("FROM --platform=linux/amd64 r.example/a@sha256:00 AS x", {"r.example/a@sha256:00"}),
        ("ARG TAG=12\nARG B\nFROM debian:${TAG}\nFROM $B", {"debian:12", "given"}),
        ('ARG TAG="12"\nFROM debian:$TAG\nARG TAG=13\nRUN echo $((1<<2)) && cat <<<x', {"debian:12"}),
        ("FROM a\nCOPY --chown=1:1 --from=nginx:1 / /", {"a", "nginx:1"}),
        ("FROM a\nCOPY --fr\\\nom=b / /", {"a", "b"}),
        ("# escape=`\nFROM a\nCOPY --from=`\n# not this\nb / /", {"a", "b"}),
        ("FROM a\nONBUILD COPY --from=b / /", {"a", "b"}),
        ("FROM a AS b\nFROM c\nONBUILD COPY --from=b / /", {"a", "b", "c"}),
        ("FROM a AS now\nCOPY --from=now / /", {"a", "now"}),
        ("FROM a\nRUN x \\\n  # said\nCOPY --from=b / /", {"a", "b"}),
        ("FROM a\nRUN x \\\n# said\n\n   y\nCOPY [\"--from=b\", \"/\"]", {"a"}),
        ("FROM a\nLABEL x=\"FROM b\"\nRUN echo FROM c", {"a"}),
        ("FROM a\nCOPY --link --chown=$U:${G} --from=b / /", {"a", "b"}),
        ("ARG P=linux/amd64\nFROM --platform=$P a", {"a"}),
        ('ARG FLAGS="-DX=1 -DY=2" BASE=a\nFROM $BASE', {"a"}),
        ("FROM a\nCOPY n\u00e4me\u00a0x /\nRUN echo $((1<<2)) $X<b ${Y:-z} < b", {"a"}),
        (f'ARG T={THEIRS}\nARG A="x T=a C="\nFROM $T', {THEIRS}),
        ("ARG X\nFROM ${X:-a}:${TAG:-1}", {"a:1"}),
        ('ARG R=r.example\nARG T\nARG X="$R/a:${T:-1}"\nFROM $X', {"r.example/a:1"}),
        ("ARG B=default\nFROM ${B:-a}", {"given"}),
        ("FROM a\nRUN x && \\\n    # said\n    rm -rf y\nCOPY --from=b / /", {"a", "b"}),
        ("# note: escape = no directive\nFROM a\nRUN x \\\n y", {"a"}),
    ],
)  # fmt: skip
def test_what_is_named(text: str, named: set[str]) -> None:
    assert needs_of(text, {"B": "given", "UNUSED": THEIRS}).images == named


@pytest.mark.parametrize(
    "text",
    [
        "FROM ${UNUSED:-a}",
        "ARG X=$Y\nFROM ${X:-a}",
        "ARG X=\nFROM ${X:-a}",
        "ARG 'X'=b\nFROM ${X:-a}",
        "ARG A=b\nARG A=c X=$A\nFROM $X",
        "ARG A=b\nARG X='$A'\nFROM $X",
        "FROM ${X:-$Y}",
        "FROM $UNDECLARED",
        "ARG X\nFROM $X",
        "ARG X=$Y\nFROM $X",
        "ARG 'X'=a\nFROM $X",
        'FROM "a"',
        "FROM a AS b c",
        "FROM",
        "FROM --pl'at'form=x a",
        f"FROM a\nCOPY --chown=1\u00a0--from={THEIRS} / /",
        f'FROM a\nCOPY --fr"om"={THEIRS} / /',
        f"FROM a\nCOPY --from=\\{THEIRS} / /",
        "FROM a\nCOPY --from=$X / /",
        f"FROM a\nRUN x \\\\\nCOPY --from={THEIRS} / /",
        f"# check=skip\n# escape=`\nFROM a\nCOPY --from={THEIRS} / /",
        "# Escape=`\nFROM a",
        f"#\u00a0escape=`\nFROM a\nRUN x \\\nFROM a AS deadbeef\nFROM a\nCOPY --from={THEIRS} / /",
        "FROM a\nONBUILD \ufeffCOPY --from=deadbeef / /",
        "FROM a\nONBUILD ONBUILD RUN x",
        "FROM a\nONBUILD FROM b",
        f"ARG A={'x' * 513}\nFROM $A",
        "ARG A=" + "x" * 500 + "\nFROM $A$A",
        "FROM a AS rock-image:00",
        "FROM --chown=x a",
    ],
)
def test_what_cannot_be_told_is_refused(text: str) -> None:
    with pytest.raises(InvalidArgument, match="cannot be told"):
        needs_of(text, {"UNUSED": THEIRS})


@pytest.mark.parametrize("control", ["\x1c", "\x1f", "\v", "\f", "\0", "\r", "\x7f"])
def test_what_only_some_take_for_a_blank_line_is_refused(control: str) -> None:
    """The builder ends `RUN` at such a line, and begins a stage with the next one."""
    with pytest.raises(InvalidArgument, match=r"control character .* in line 3"):
        needs_of(f"FROM a\r\nRUN x \\\r\n{control}x\r\nFROM {THEIRS}", {})


@pytest.mark.parametrize(
    "run",
    ["<<EOF", "cat 3<<-'EOF'", "${X:-}<<EOF", "<${X:-}<EOF", "${X:-<<EOF}", "${X:-${Y:-<<EOF}}"],
)
def test_a_here_document_is_refused(run: str) -> None:
    with pytest.raises(InvalidArgument, match=r"here-document.*printf"):
        needs_of(f"FROM a\nRUN {run}\nFROM a AS deadbeef\nEOF\nFROM a\nCOPY --from=deadbeef / /", {})


def test_what_the_builder_cannot_do_is_said_before_it_is_built() -> None:
    with pytest.raises(InvalidArgument, match="only BuildKit"):
        needs_of("FROM a\nRUN --mount=type=cache,target=/x pip install y", {})
    with pytest.raises(InvalidArgument, match="unknown instruction 'INCLUDE'"):
        needs_of("FROM a\nINCLUDE b", {})


def test_no_dockerfile_keeps_its_reader_busy() -> None:
    """Each took minutes or gigabytes while it was read by backtracking, or filled in without a bound."""
    assert needs_of("# a=x" + " " * 1_000_000 + "y\nFROM a", {}).images == {"a"}
    with pytest.raises(InvalidArgument):
        needs_of("FROM a\nRUN " + "${" * 500_000 + "<", {})
    with pytest.raises(InvalidArgument):
        needs_of("ARG A=" + "x" * 500_000 + "\nFROM " + "$A" * 200_000, {})
    with pytest.raises(InvalidArgument):
        needs_of("ONBUILD " * 125_000 + "RUN x", {})
    with pytest.raises(InvalidArgument, match=f"names {MOST_IMAGES + 1} images"):
        needs_of("".join(f"FROM a{number}\n" for number in range(MOST_IMAGES + 1)), {})


@pytest.mark.parametrize(
    ("add", "is_one"),
    [
        ("https://x.example/a /a", True),
        ("--chown=1:1 a http://127.0.0.1/ /a", True),
        ("$SOURCE /a", True),
        ("h${X}://y /a", True),
        ('"http://x" /a', True),
        ('["http://x", "/a"]', True),
        ('["\\u0068ttp://x", "/a"] rest', True),
        ('["http://x", 1]', True),
        ("a.tar.gz $HOME/", False),
        ("app-${VERSION}.tar https /a", False),
        ('["a", "http://x"]', False),
    ],
)
def test_what_the_engine_would_download_is_told(add: str, is_one: bool) -> None:
    assert bool(needs_of(f"FROM a\nADD {add}", {}).downloads) == is_one
    assert bool(needs_of_triggers([f"ADD {add}"]).downloads) == is_one


def test_triggers_of_a_base_image_are_read() -> None:
    assert needs_of_triggers(["RUN x", f"COPY --from={THEIRS} / /"]).images == {THEIRS}
    for hidden in ("\ufeffCOPY --from=x / /", "RUN x\nCOPY --from=x / /", "#\tescape=`", "ONBUILD RUN x"):
        with pytest.raises(InvalidArgument, match="cannot be told"):
            needs_of_triggers([hidden])


def test_platforms_are_told() -> None:
    assert needs_of("FROM --platform=linux/arm64 a\nFROM b", {}).platforms == {"linux/arm64"}


def packed(*members: tuple[str, bytes | str]) -> bytes:
    """Return a tar of files (bytes) and symbolic links (text)."""
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w") as tar:
        for name, content in members:
            member = tarfile.TarInfo(name)
            if isinstance(content, str):
                member.type, member.linkname = tarfile.SYMTYPE, content
                tar.addfile(member)
            else:
                member.size = len(content)
                tar.addfile(member, io.BytesIO(content))
    return data.getvalue()


async def sealed(tar: bytes) -> frozenset[str]:
    context = await BuildContext.open()
    try:
        await context.write(tar)
        await context.seal(dockerfile="Dockerfile", build_args={})
        return context.needs.images
    finally:
        context.close()


async def test_a_context_knows_what_its_dockerfile_names() -> None:
    assert await sealed(packed(("./Dockerfile", b"FROM a"), ("x", b""))) == {"a"}


OTHER = f"FROM {THEIRS}".encode()


@pytest.mark.parametrize(
    "tar",
    [
        packed(("Dockerfile", b"FROM a"), ("./Dockerfile", OTHER)),
        packed(("Dockerfile", b"FROM a"), ("d", "."), ("d/Dockerfile", OTHER)),
        packed(("Dockerfile", "other"), ("other", OTHER)),
        packed(("Dockerfile", b"FROM \xff")),
        packed(("Dockerfile", b" " * ((1 << 20) + 1))),
    ],
    ids=["twice", "through a link", "a link", "no text", "large"],
)
async def test_no_other_dockerfile_is_built_than_the_one_that_was_read(tar: bytes) -> None:
    with pytest.raises(InvalidArgument):
        await sealed(tar)
