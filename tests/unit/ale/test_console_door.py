"""Who may ask the console, and what each answer carries."""

from __future__ import annotations

from pathlib import Path

import pytest
from console_run import HERE, client, write_run

from ale.console.guard import is_loopback

TOKEN = "a-token-of-this-test"
ASKED = "/api/runs"


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "127.0.0.1.evil.example",
        "localhost.evil.example",
        "",
        "127.0.0.1:8399@evil",
        "[::1",
        "a" * 300,
        "10.0.0.7",
    ],
)
def test_a_stranger_s_name_for_this_machine_is_refused(tmp_path: Path, host: str) -> None:
    answer = client(write_run(tmp_path / "run")).get(ASKED, headers={"host": host})
    assert answer.status_code == 403
    assert "places" not in answer.text


@pytest.mark.parametrize("host", ["127.0.0.1:8399", "localhost:1", "LOCALHOST", "[::1]:8399"])
def test_this_machine_s_own_names_are_answered(tmp_path: Path, host: str) -> None:
    assert client(write_run(tmp_path / "run")).get(ASKED, headers={"host": host}).status_code == 200


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "http://evil.example"},
        {"origin": "null"},
        {"origin": "https://127.0.0.1:8399"},
        {"origin": "http://127.0.0.1:8398"},
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
    ],
)
def test_another_page_of_the_browser_is_refused(tmp_path: Path, headers: dict[str, str]) -> None:
    assert client(write_run(tmp_path / "run")).get(ASKED, headers=headers).status_code == 403


def test_the_own_page_and_a_link_from_elsewhere_are_answered(tmp_path: Path) -> None:
    asks = client(write_run(tmp_path / "run"))
    assert asks.get(ASKED, headers={"origin": HERE, "sec-fetch-site": "same-origin"}).status_code == 200
    assert (
        asks.get("/", headers={"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate"}).status_code
        == 200
    )
    assert (
        asks.get("/", headers={"sec-fetch-site": "cross-site", "sec-fetch-mode": "no-cors"}).status_code
        == 403
    )


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS"])
def test_nothing_can_be_written(tmp_path: Path, method: str) -> None:
    assert client(write_run(tmp_path / "run")).request(method, ASKED).status_code == 405


def test_a_run_may_be_called_like_the_path_that_computes(tmp_path: Path) -> None:
    asks = client(write_run(tmp_path / "account"))
    assert asks.get("/api/runs/account").json()["name"] == "account"
    assert asks.post("/api/runs/account").status_code == 405


def test_a_computation_is_begun_by_the_own_page_alone(tmp_path: Path) -> None:
    asks = client(write_run(tmp_path / "run"))
    place = "/api/runs/run/account?id=x"
    assert asks.get(place).status_code == 405
    assert asks.post(place).status_code == 403
    assert asks.post(place, headers={"origin": "http://evil.example"}).status_code == 403
    assert asks.post(place, headers={"origin": HERE}).status_code == 404


def test_off_loopback_a_token_comes_before_everything(tmp_path: Path) -> None:
    base = "http://10.0.0.7:8399"
    asks = client(write_run(tmp_path / "run"), token=TOKEN, host="0.0.0.0", base=base)
    for place in (
        "/",
        ASKED,
        "/page/app.js",
        "/api/runs/x/metrics",
        "/no/such",
        f"{ASKED}?token={TOKEN}",
        "/?token=x",
        "/?" + "&".join("abcdefghijkl"),
    ):
        assert asks.get(place).status_code == 401, place
    assert asks.get("/", headers={"host": "evil.example"}, params={"token": TOKEN}).status_code == 403
    answer = asks.get("/", params={"token": TOKEN})
    assert (answer.status_code, answer.headers["location"]) == (303, "/")
    cookie = answer.headers["set-cookie"].lower()
    assert "httponly" in cookie
    assert (
        "samesite=lax" in cookie
    )  # a link to the token, clicked on another page, is followed by the page itself
    assert TOKEN not in cookie
    assert asks.get(ASKED).status_code == 200  # with the cookie
    own = answer.headers["set-cookie"].partition(";")[0]
    asks.cookies.clear()
    for others in ('x={"a":1}; ', "a b; ", "=; ;"):
        assert asks.get(ASKED, headers={"cookie": f"{others}{own}"}).status_code == 200, (
            "others' cookies are theirs"
        )
    for wrong in ("ale-console-8399=", "ale-console-8399=" + "x" * 43, "ale-console-8399=\udce9", ";;;=,"):
        asks.cookies.clear()
        assert asks.get(ASKED, headers={"cookie": wrong.encode(errors="replace").decode()}).status_code == 401


def test_every_answer_says_that_nothing_in_it_runs(tmp_path: Path) -> None:
    asks = client(write_run(tmp_path / "run"))
    for place in ("/", "/page/app.js", ASKED, "/no/such", "/api/runs/9"):
        headers = asks.get(place).headers
        policy = headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["referrer-policy"] == "no-referrer"
    assert asks.get(ASKED).headers["content-type"] == "application/json"
    page = asks.get("/").text
    assert "<script>" not in page
    assert "style=" not in page


@pytest.mark.parametrize(
    "name",
    ["..%2fapp.py", "%2e%2e/app.py", "app.py", "", "index.html%00", "../../../etc/passwd", "..\\app.py"],
)
def test_only_the_page_s_own_files_are_served(tmp_path: Path, name: str) -> None:
    assert client(write_run(tmp_path / "run")).get(f"/page/{name}").status_code == 404


def test_loopback_is_a_list() -> None:
    assert is_loopback("127.0.0.1")
    assert not any(map(is_loopback, ("0.0.0.0", "::", "10.0.0.7", "127.0.0.1.evil.example", "")))
