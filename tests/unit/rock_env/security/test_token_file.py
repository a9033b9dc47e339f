"""The token file: what is written is read, nothing half-written or untrusted is, and changes are seen."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rock_env.errors import FailedPrecondition, NotFound, Unavailable
from rock_env.security.auth import Scope, Token, new_token
from rock_env.security.token_file import TokenFile, add_token, read_tokens, revoke_token

SECONDS = st.integers(min_value=0, max_value=253_402_300_799).map(float)
RECORDS = st.builds(
    Token,
    id=st.text("0123456789abcdef", min_size=12, max_size=12),
    tenant=st.from_regex(r"[a-z0-9][a-z0-9._-]{0,20}", fullmatch=True),
    scopes=st.frozensets(st.sampled_from(list(Scope)), min_size=1),
    secret_sha256=st.binary(min_size=32, max_size=32),
    created_at=SECONDS,
    expires_at=st.none() | SECONDS,
)


def added(path: Path, tenant: str = "blue") -> Token:
    token, _ = new_token(tenant, ["env"])
    add_token(path, token)
    return token


@settings(max_examples=30)
@given(st.lists(RECORDS, min_size=1, max_size=5, unique_by=lambda token: token.id))
def test_what_is_added_is_read_and_what_is_revoked_is_gone(
    tmp_path_factory: pytest.TempPathFactory, tokens: list[Token]
) -> None:
    path = tmp_path_factory.mktemp("tokens") / "t.json"
    for token in tokens:
        add_token(path, token)
    assert list(read_tokens(path).values()) == tokens
    for token in tokens:
        assert revoke_token(path, token.id) == token
    assert read_tokens(path) == {}


def test_the_file_is_its_owners_alone_and_holds_no_secret(tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    former = os.umask(0)
    try:
        token, text = new_token("blue", ["env"])
        add_token(path, token)
        added(path)
    finally:
        os.umask(former)
    assert path.stat().st_mode & 0o777 == 0o600
    assert text.rpartition("_")[2] not in path.read_text()
    assert [entry.name for entry in tmp_path.iterdir()] == ["t.json"]


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o644, 0o602])
def test_a_file_that_others_may_touch_is_not_trusted(tmp_path: Path, mode: int) -> None:
    path = tmp_path / "t.json"
    added(path)
    path.chmod(mode)
    with pytest.raises(FailedPrecondition, match=f"mode {mode:04o}, expected 0600"):
        read_tokens(path)
    with pytest.raises(FailedPrecondition, match="chmod 600"):
        added(path)


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to give a file to another user")
@pytest.mark.parametrize(
    ("owner", "mode", "taken"),
    [(0, 0o440, True), (0, 0o640, True), (0, 0o444, False), (0, 0o460, False), (1234, 0o440, False)],
    ids=["a Secret", "writable by root", "everybody's", "group writes", "one's own"],
)
def test_a_mounted_secret_is_trusted_by_its_group(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, owner: int, mode: int, taken: bool
) -> None:
    """Kubernetes mounts a Secret as root's, and gives the pod's group the right to read it."""
    path = tmp_path / "t.json"
    token = added(path)
    os.chown(path, owner, 4321)
    path.chmod(mode)
    monkeypatch.setattr(os, "geteuid", lambda: 1234)
    monkeypatch.setattr(os, "getegid", lambda: 1234)
    monkeypatch.setattr(os, "getgroups", lambda: [4321])
    if taken:
        assert list(read_tokens(path)) == [token.id]
        monkeypatch.setattr(os, "getgroups", lambda: [4322])
    with pytest.raises(FailedPrecondition, match="expected 0600"):
        read_tokens(path)


GOOD = {"id": "0" * 12, "tenant": "a", "scopes": ["env"], "sha256": "A" * 43 + "=", "created_at": 1}


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"[]",
        b"\xff\xfe",
        b'{"version": 2, "tokens": []}',
        b'{"version": 1}',
        b'{"version": 1, "tokens": [], "more": 1}',
        *(
            json.dumps({"version": 1, "tokens": [{**GOOD, **change}]}).encode()
            for change in (
                {"id": "x"},
                {"id": "0" * 12 + "\n"},
                {"tenant": "A"},
                {"scopes": []},
                {"scopes": ["root"]},
                {"sha256": "AA=="},
                {"sha256": "\u00e4"},
                {"sha256": 5},
                {"created_at": -1},
                {"expires_at": 1e300},
                {"note": "x"},
            )
        ),
        json.dumps({"version": 1, "tokens": [GOOD, GOOD]}).encode(),
    ],
)
def test_a_damaged_file_admits_nobody_and_is_never_replaced(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "t.json"
    path.write_bytes(content)
    path.chmod(0o600)
    with pytest.raises(FailedPrecondition, match="is not a token file"):
        read_tokens(path)
    with pytest.raises(FailedPrecondition):
        added(path)
    assert path.read_bytes() == content


def test_the_good_entry_of_the_damaged_ones_is_good(tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    path.write_text(json.dumps({"version": 1, "tokens": [GOOD]}))
    path.chmod(0o600)
    assert read_tokens(path)["0" * 12].secret_sha256 == bytes(32)


def test_what_cannot_be_is_said(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="ale rock token create"):
        read_tokens(tmp_path / "t.json")
    with pytest.raises(NotFound, match="no token file"):
        revoke_token(tmp_path / "t.json", "0" * 12)
    with pytest.raises(FailedPrecondition, match="cannot open the folder"):
        added(tmp_path / "nowhere" / "t.json")
    with pytest.raises(FailedPrecondition, match="regular file"):
        read_tokens(Path("/dev/null"))
    (tmp_path / "folder").mkdir()
    with pytest.raises(FailedPrecondition, match="cannot read"):
        read_tokens(tmp_path / "folder")
    path = tmp_path / "t.json"
    added(path)
    with pytest.raises(NotFound, match="no token 'nix'"):
        revoke_token(path, "nix")


def test_a_link_to_the_file_stays_a_link(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    link, real = tmp_path / "t.json", tmp_path / "real" / "t.json"
    link.symlink_to(real)
    token = added(link)
    assert link.is_symlink()
    assert list(read_tokens(real)) == [token.id]


ADD = """
import sys
from pathlib import Path
from rock_env.security.auth import new_token
from rock_env.security.token_file import add_token
for _ in range(10):
    add_token(Path(sys.argv[1]), new_token("blue", ["env"])[0])
"""


def test_processes_that_write_at_once_lose_nothing(tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    writers = [subprocess.Popen([sys.executable, "-c", ADD, str(path)]) for _ in range(3)]
    assert [writer.wait(timeout=60) for writer in writers] == [0, 0, 0]
    assert len(read_tokens(path)) == 30


def test_a_full_disk_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    token = added(path)
    limited = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (300, 300))"
    done = subprocess.run(
        [sys.executable, "-c", limited + ADD, str(path)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert "It is unchanged." in done.stderr
    assert list(read_tokens(path)) == [token.id]
    assert [entry.name for entry in tmp_path.iterdir()] == ["t.json"]


def test_a_running_server_sees_each_change(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "t.json"
    first = added(path)
    file = TokenFile(path)
    assert list(file.tokens()) == [first.id]
    second = added(path, "red")
    assert list(file.tokens()) == [first.id, second.id]
    revoke_token(path, first.id)
    assert list(file.tokens()) == [second.id]
    path.chmod(0o644)
    for _ in range(3):
        with pytest.raises(Unavailable, match="admits nobody") as caught:
            file.tokens()
        assert str(path) not in str(caught.value)
    assert caplog.text.count("chmod 600") == 1
    path.chmod(0o600)
    assert list(file.tokens()) == [second.id]
    path.unlink()
    with pytest.raises(Unavailable):
        file.tokens()
    third = added(path)
    assert list(file.tokens()) == [third.id]
