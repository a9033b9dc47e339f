"""`ale replay pack` and `unpack`: what looks like a secret stays at home, and an archive of somebody else does no harm."""

from __future__ import annotations

import io
import shutil
import tarfile
from dataclasses import fields, is_dataclass, replace
from enum import Enum
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from agent_runtime.store import encode, read_segment, segment_path, write_segment
from ale.errors import RecordError
from ale.replay.interchange import packing
from ale.replay.interchange.packing import pack_command, unpack_command
from ale.replay.interchange.redaction import MARK, redacted, redacted_rollout
from rock_env.errors import InvalidArgument

KEPT = Path(__file__).parents[1] / "kept"
KEY = "sk-" + "a1B2" * 8


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return Path(shutil.copytree(KEPT / "run", tmp_path / "run"))


@pytest.mark.parametrize(
    "text",
    [
        KEY,
        f"the key is {KEY}, keep it",
        "AKIA" + "ABCD" * 4,
        "ghp_" + "x" * 36,
        "curl -H 'Authorization: Bearer abcdef123456'",
        "https://me:hunter22@example.org/x",
        'PASSWORD = "hunter22"',
        "db_password: hunter22",
        '{"api_key": "hunter22"}',
        "export MY_TOKEN=hunter22",
        "-----BEGIN RSA PRIVATE KEY-----\nMIIEabc\n-----END RSA PRIVATE KEY-----",
        "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.abcdefgh",
    ],
)
def test_secrets_are_taken_out(text: str) -> None:
    clean = redacted(text)
    assert MARK in clean
    for secret in (KEY, "hunter22", "ABCDABCD", "xxxxxxxx", "abcdef123456", "MIIEabc", "eyJzdWIi"):
        assert secret not in clean


@pytest.mark.parametrize(
    "text",
    ["token_budget = 4096", "max_tokens = 16", '{"tokens/total": 72.0}', "The token is a word.", "a: b", ""],
)
def test_ordinary_words_stay(text: str) -> None:
    assert redacted(text) == text


def test_the_home_folder_is_not_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Path, "home", lambda: Path("/home/somebody"))
    assert redacted("/home/somebody/runs/x") == "~/runs/x"


@pytest.mark.timeout(60)
@pytest.mark.parametrize(
    "piece",
    [
        "token" * 50_000,
        "://a" * 50_000,
        "-----BEGIN RSA PRIVATE KEY-----" * 3_000,
        "a-" * 100_000,
        "password=" * 30_000,
        "eyJ" + "a" * 200_000,
    ],
)
def test_hostile_texts_do_not_hold_it_up(piece: str) -> None:
    assert redacted(piece).startswith(piece[:2])


def test_a_rollout_with_a_secret_loses_its_tokens_too() -> None:
    plain = next(iter(read_segment(KEPT / "every_field.traj")))
    same, changed = redacted_rollout(plain)
    assert (same is plain, changed) == (True, False)
    told = replace(plain, actions=(f"echo {KEY}", *plain.actions[1:]))
    clean, changed = redacted_rollout(told)
    assert changed
    assert clean.actions[0] == f"echo {MARK}"
    assert not any(np.any(turn.completion_ids) for turn in clean.turns)
    assert [len(t.completion_ids) for t in clean.turns] == [len(t.completion_ids) for t in told.turns]
    assert KEY.encode() not in encode(clean)


def planted(value: Any) -> Any:
    """Return a record in which every text has a secret at its end."""
    if isinstance(value, str) and not isinstance(value, Enum):
        return f"{value} {KEY}"
    if isinstance(value, tuple):
        told = [planted(each) for each in value]
        return type(value)(*told) if hasattr(value, "_fields") else tuple(told)
    if is_dataclass(value) and not isinstance(value, type):
        names = [field.name for field in fields(value) if field.init]
        return replace(value, **{name: planted(getattr(value, name)) for name in names})
    return value


def test_no_text_of_a_record_is_left_out() -> None:
    told = planted(next(iter(read_segment(KEPT / "every_field.traj"))))
    assert repr(told).count(KEY) > 20, "the kept record has a text in every field"
    clean, changed = redacted_rollout(told)
    assert changed
    assert KEY not in repr(clean)
    assert clean.grader_output.endswith(MARK)


def test_tokens_stay_where_no_model_saw_the_secret() -> None:
    plain = next(iter(read_segment(KEPT / "every_field.traj")))
    clean, changed = redacted_rollout(replace(plain, grader_output=f"expected {KEY}"))
    assert (clean.grader_output, changed) == (f"expected {MARK}", True)
    assert any(np.any(turn.completion_ids) for turn in clean.turns)


def test_a_packed_run_comes_back(run: Path, tmp_path: Path) -> None:
    pack_command(str(run), tmp_path / "a.tar.gz", step=None, yes=False)
    unpack_command(tmp_path / "a.tar.gz", tmp_path / "back")
    names = {path.relative_to(run) for path in (run / "trajectories").glob("*.traj")}
    assert {
        path.relative_to(tmp_path / "back") for path in (tmp_path / "back" / "trajectories").iterdir()
    } == names
    for name in names:
        assert list(map(encode, read_segment(run / name))) == list(
            map(encode, read_segment(tmp_path / "back" / name))
        )
    assert (tmp_path / "back" / "PACKED.json").is_file()
    assert not (tmp_path / "back" / "checkpoints").exists()
    with pytest.raises(RecordError, match="is there already"):
        unpack_command(tmp_path / "a.tar.gz", tmp_path / "back")
    with pytest.raises(RecordError, match="is there already"):
        pack_command(str(run), tmp_path / "a.tar.gz", step=None, yes=False)


def test_rollouts_with_secrets_are_packed_without(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plain = next(iter(read_segment(KEPT / "every_field.traj")))
    write_segment(segment_path(run, "step", 77), [replace(plain, actions=(KEY, *plain.actions[1:])), plain])
    (run / "lineage.json").write_text(f'{{"api_key": "{KEY}"}}')
    pack_command(str(run), tmp_path / "a.tar.gz", step=None, yes=False)
    assert "1 rollouts held what looks like a secret" in capsys.readouterr().out
    with tarfile.open(tmp_path / "a.tar.gz") as archive:
        for entry in archive:
            content = archive.extractfile(entry)
            assert content is not None
            assert KEY.encode() not in content.read()
    unpack_command(tmp_path / "a.tar.gz", tmp_path / "back")
    packed = list(read_segment(segment_path(tmp_path / "back", "step", 77)))  # compressed in the file itself
    assert len(packed) == 2
    assert not any(KEY.encode() in encode(each) for each in packed)


def test_damaged_records_are_left_out_and_told(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = segment_path(run, "step", 78)
    plain = next(iter(read_segment(KEPT / "every_field.traj")))
    write_segment(path, [replace(plain, id=f"r{number}") for number in range(3)])
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    (run / "trajectories" / "expert.traj").write_bytes(b"rubbish")
    with pytest.raises(RecordError, match="2 records or files are damaged; all others were read"):
        pack_command(str(run), tmp_path / "a.tar.gz", step=None, yes=False)
    assert "files of" in capsys.readouterr().out
    unpack_command(tmp_path / "a.tar.gz", tmp_path / "back")
    assert [each.id for each in read_segment(segment_path(tmp_path / "back", "step", 78))] == ["r0", "r2"]


def test_a_large_pack_asks(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packing, "ASKS_ABOVE", 10)
    with pytest.raises(RecordError, match="Give --yes"):
        pack_command(str(run), tmp_path / "a.tar.gz", step=None, yes=False)
    assert not (tmp_path / "a.tar.gz").exists()
    pack_command(str(run), tmp_path / "a.tar.gz", step=None, yes=True)


def entry(name: str, kind: bytes = tarfile.REGTYPE, link: str = "") -> tarfile.TarInfo:
    found = tarfile.TarInfo(name)
    found.type, found.linkname = kind, link
    return found


@pytest.mark.parametrize(
    "bad",
    [
        entry("/etc/x"),
        entry("../x"),
        entry("a/../../x"),
        entry("x", tarfile.SYMTYPE, "/etc/passwd"),
        entry("x", tarfile.LNKTYPE, "../x"),
        entry("x", tarfile.FIFOTYPE),
        entry("x", tarfile.CHRTYPE),
    ],
)
def test_an_archive_that_reaches_out_leaves_nothing(tmp_path: Path, bad: tarfile.TarInfo) -> None:
    path = tmp_path / "in" / "bad.tar.gz"
    path.parent.mkdir()
    with tarfile.open(path, "w:gz") as archive:
        archive.addfile(entry("PACKED.json"))
        archive.addfile(bad)
    (tmp_path / "out").mkdir()
    with pytest.raises(RecordError, match=r"plain files in at most|leads out of it"):
        unpack_command(path, tmp_path / "out" / "un")
    assert list((tmp_path / "out").iterdir()) == []


def test_what_is_no_pack_or_too_much_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "text").write_text("no")
    with pytest.raises(RecordError, match="is no pack"):
        unpack_command(tmp_path / "text", tmp_path / "un")
    with pytest.raises(RecordError, match="is no pack"):
        unpack_command(tmp_path / "gone", tmp_path / "un")
    with tarfile.open(tmp_path / "other.tar", "w") as archive:
        archive.addfile(entry("a"), io.BytesIO())
    with pytest.raises(RecordError, match=r"holds no PACKED\.json"):
        unpack_command(tmp_path / "other.tar", tmp_path / "un")
    monkeypatch.setattr(packing, "_MOST_FILES", 3)
    with tarfile.open(tmp_path / "many.tar", "w") as archive:
        for number in range(5):
            archive.addfile(entry(f"f{number}"))
    with pytest.raises(RecordError, match="at most 3 files"):
        unpack_command(tmp_path / "many.tar", tmp_path / "un")
    assert not (tmp_path / "un").exists()


def test_no_file_outside_the_run_is_packed(run: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").write_text("mine")
    (run / "own.json").unlink(missing_ok=True)
    (run / "own.json").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(InvalidArgument, match=r"own\.json is a link that leads out"):
        pack_command(str(run), tmp_path / "pack.tar.gz", step=None, yes=False)
    assert not (tmp_path / "pack.tar.gz").exists()
