"""Which images a Dockerfile names, and that nothing hides one from whoever asks."""

from __future__ import annotations

import io
import tarfile

import pytest

from rock_env.errors import InvalidArgument
from rock_env.server.images.context import BuildContext
from rock_env.server.images.dockerfile import images_named

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
        ("ONBUILD " * 100_000 + "RUN x", set()),
    ],
)  # fmt: skip
def test_what_is_named(text: str, named: set[str]) -> None:
    assert images_named(text, {"B": "given", "UNUSED": THEIRS}) == named


@pytest.mark.parametrize(
    "text",
    [
        "FROM ${X:-a}",
        "FROM $UNDECLARED",
        "ARG X\nFROM $X",
        "ARG X=$Y\nFROM $X",
        "ARG 'X'=a\nFROM $X",
        'FROM "a"',
        "FROM a AS b c",
        "FROM",
        "FROM --pl'at'form=x a",
        f"FROM a\nCOPY --chown=1\u00a0--from={THEIRS} / /",
        f"FROM a\nCOPY --chown=1\x1c --from={THEIRS} / /",
        f'FROM a\nCOPY --fr"om"={THEIRS} / /',
        f"FROM a\nCOPY --from=\\{THEIRS} / /",
        "FROM a\nCOPY --from=$X / /",
        f"FROM a\nRUN x \\\\\nCOPY --from={THEIRS} / /",
        f"# check=skip\n# escape=`\nFROM a\nCOPY --from={THEIRS} / /",
        "# Escape=`\nFROM a",
        "FROM a\nRUN <<EOF\nFROM x AS deadbeef\nEOF",
        "FROM a\nCOPY <<-'EOF' /x\nEOF",
    ],
)
def test_what_cannot_be_told_is_refused(text: str) -> None:
    with pytest.raises(InvalidArgument, match="cannot be told"):
        images_named(text, {})


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
        return context.images
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
