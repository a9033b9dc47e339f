"""What a user names is opened only if it is a regular file, and parsed to one error."""

import io
import json
import os
import socket
import tarfile
import tomllib
from pathlib import Path

import pytest
import yaml

from ale.cli import explained
from rock_env.client import build_context
from rock_env.client.sandbox.trees import packed
from rock_env.errors import InvalidArgument
from rock_env.foreign.files import open_regular, parsed, plain_values, read_regular


def test_only_regular_files_are_opened(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "link").symlink_to("fifo")
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(str(tmp_path / "socket"))
    (tmp_path / "file").write_bytes(b"12345")
    (tmp_path / "to_file").symlink_to("file")
    for path in (tmp_path / "fifo", tmp_path / "link", tmp_path / "socket", tmp_path, Path("/dev/zero")):
        with pytest.raises(OSError, match=r"expected a regular file|Is a directory"):
            open_regular(path)
    listening.close()
    assert read_regular(tmp_path / "to_file", 5) == b"12345"
    with pytest.raises(InvalidArgument, match="file has more than 4 bytes"):
        read_regular(tmp_path / "file", 4)


@pytest.mark.parametrize(
    ("decode", "content"),
    [
        (json.loads, "[" * 100_000),
        (json.loads, "9" * 5000),
        (tomllib.loads, "a = " + "9" * 5000),
        (tomllib.loads, "a = " + "[" * 50_000),
        (yaml.safe_load, "[" * 5000),
        (yaml.safe_load, "a: 2001-99-99"),
        (bytes.decode, b"\xff"),
    ],
)
def test_whatever_a_parser_raises_is_one_error(decode: object, content: str | bytes) -> None:
    with pytest.raises(InvalidArgument, match=r"^the file is bad: "):
        parsed(decode, content, "the file is bad")  # type: ignore[arg-type]


def test_values_have_bounds() -> None:
    laughs = "a: &a [x,x,x,x,x,x,x,x,x,x]\n" + "".join(
        f"{chr(98 + n)}: &{chr(98 + n)} [{','.join(['*' + chr(97 + n)] * 10)}]\n" for n in range(9)
    )
    for text in (laughs, "a: &a [*a]", "a: 0x" + "f" * 5000):
        with pytest.raises(InvalidArgument, match=r"the file (has|is)"):
            plain_values(yaml.safe_load(text), "the file")
    assert plain_values({"a": [1, {"b": 2**63}]}, "the file") == {"a": [1, {"b": 2**63}]}


async def test_a_copied_or_built_folder_holds_no_fifo(tmp_path: Path) -> None:
    (tmp_path / "Dockerfile").write_text("FROM scratch\n")
    build_context.packed(tmp_path).close()
    whole = b"".join([piece async for piece in packed(tmp_path)])
    with tarfile.open(fileobj=io.BytesIO(whole)) as tar:
        assert tar.getnames() == ["Dockerfile"]
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(InvalidArgument, match="pipe"):
        build_context.packed(tmp_path)
    with pytest.raises(InvalidArgument, match="cannot copy pipe"):
        _ = [piece async for piece in packed(tmp_path)]


def test_an_error_nobody_expected_is_one_line() -> None:
    said, code = explained(KeyError("a\nb" + "x" * 5000))
    assert code == 70
    assert said.startswith("an unexpected error, KeyError: ")
    assert "ALE_DEBUG=1" in said
    assert "\n" not in said
    assert len(said) < 1200
