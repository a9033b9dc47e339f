"""Kubeconfigs that would show a token to others, act with other rights than they say, or read without an end."""

from __future__ import annotations

import json
import ssl
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rock_env.errors import FailedPrecondition
from rock_env.security.kubeconfig import TokenSource, read_kubeconfig


def written(folder: Path, user: dict[str, Any], **cluster: Any) -> Path:
    given = {
        "current-context": "here",
        "contexts": [{"name": "here", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": {"server": "https://10.0.0.1", **cluster}}],
        "users": [{"name": "u", "user": user}],
    }
    path = folder / "kubeconfig"
    path.write_text(json.dumps(given))
    return path


@pytest.mark.parametrize("user", [{"token": "word"}, {"tokenFile": "t"}, {"exec": {"command": "x"}}])
def test_a_token_goes_over_no_connection_that_others_can_read(tmp_path: Path, user: dict[str, Any]) -> None:
    for server in ("http://10.0.0.1", "http://127.0.0.1.example.org", "ftp://10.0.0.1"):
        with pytest.raises(FailedPrecondition, match="expected https://"):
            read_kubeconfig(written(tmp_path, user, server=server), programs=True)
    assert read_kubeconfig(written(tmp_path, {"token": "word"}, server="http://127.0.0.1:8001/")).url
    assert read_kubeconfig(written(tmp_path, {}, server="http://10.0.0.1")).url


@pytest.mark.parametrize("said", ["false", "no", 0, 1, []])
def test_only_a_plain_true_leaves_the_servers_certificate_unchecked(tmp_path: Path, said: object) -> None:
    with pytest.raises(FailedPrecondition, match="insecure-skip-tls-verify"):
        read_kubeconfig(written(tmp_path, {"token": "word"}, **{"insecure-skip-tls-verify": said}))
    checked = read_kubeconfig(written(tmp_path, {"token": "word"}, **{"insecure-skip-tls-verify": False}))
    assert checked.tls.verify_mode is ssl.CERT_REQUIRED


@pytest.mark.parametrize("acts", [{"as": "viewer"}, {"as-groups": ["viewers"]}, {"as-uid": "1"}])
def test_an_account_that_is_to_act_as_another_does_not_act_as_itself(
    tmp_path: Path, acts: dict[str, Any]
) -> None:
    with pytest.raises(FailedPrecondition, match="act as another"):
        read_kubeconfig(written(tmp_path, {"token": "word", **acts}))


def test_a_token_that_no_header_takes_is_refused_without_its_words(tmp_path: Path) -> None:
    assert read_kubeconfig(written(tmp_path, {"token": "word\n"})).token() == "word"
    (tmp_path / "t").write_text("sec\nret")
    broken: list[Callable[[], object]] = [
        lambda: read_kubeconfig(written(tmp_path, {"token": "sec\nret"})),
        read_kubeconfig(written(tmp_path, {"tokenFile": "t"})).token,
        TokenSource(program=lambda: ("sec ret", None)),
    ]
    for read in broken:
        with pytest.raises(FailedPrecondition, match="no header takes") as refused:
            read()
        assert "sec" not in str(refused.value)


def test_files_without_an_end_and_files_that_are_gone_are_refused(tmp_path: Path) -> None:
    with pytest.raises(FailedPrecondition, match="a character device, expected a regular file"):
        read_kubeconfig(written(tmp_path, {"tokenFile": "/dev/zero"})).token()
    with pytest.raises(FailedPrecondition, match="a character device, expected a regular file"):
        read_kubeconfig(written(tmp_path, {}, **{"certificate-authority": "/dev/zero"}))
    with pytest.raises(FailedPrecondition, match="cannot be read"):
        read_kubeconfig(written(tmp_path, {"tokenFile": "gone"})).token()
    (tmp_path / "deep").write_text("[" * 100_000)
    with pytest.raises(FailedPrecondition, match="cannot be used"):
        read_kubeconfig(tmp_path / "deep")


@pytest.mark.parametrize(
    "place",
    [
        "token: {}",
        "exec: {{command: x, apiVersion: v1, args: [{}]}}",
        "exec: {{command: {}}}",
        "server",
        "context",
    ],
)
def test_lists_that_name_each_other_are_no_text(tmp_path: Path, place: str) -> None:
    # As a text it would have 2 ** 60 characters.
    doubled = ["- &a0 [x, x]", *(f"- &a{n} [*a{n - 1}, *a{n - 1}]" for n in range(1, 60))]
    text = [
        "lists:",
        *doubled,
        f"current-context: {'*a59' if place == 'context' else 'here'}",
        "contexts: [{name: here, context: {cluster: c, user: u}}]",
        f"clusters: [{{name: c, cluster: {{server: {'*a59' if place == 'server' else 'https://10.0.0.1'}}}}}]",
        f"users: [{{name: u, user: {{{place.format('*a59') if ':' in place else ''}}}}}]",
    ]
    (tmp_path / "config").write_text("\n".join(text))
    with pytest.raises(FailedPrecondition, match="cannot be used"):
        read_kubeconfig(tmp_path / "config", programs=True)


def test_threads_that_need_a_token_at_once_run_its_program_once() -> None:
    ran: list[int] = []
    both = threading.Barrier(8)
    more = threading.Event()

    def program() -> tuple[str, float | None]:
        ran.append(1)
        more.wait(0.2)  # long enough for the others to come
        return "word", None

    source, got = TokenSource(program=program), []

    def ask() -> None:
        both.wait(60)
        got.append(source())

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert (got, len(ran)) == (["word"] * 8, 1)
