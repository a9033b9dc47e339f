"""API tokens: who is let in, who is not, and what a refusal never says."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rock_env.errors import InvalidArgument, PermissionDenied, Unauthenticated, UnknownName
from rock_env.security.auth import (
    Caller,
    Scope,
    act_for,
    acting_for,
    authenticate,
    check_tenant,
    current_tenant,
    new_token,
)

TOKEN, TEXT = new_token("blue", ["env", "sandbox"], expires_at=2000.0, now=1000.0)
TOKENS = {TOKEN.id: TOKEN}
SECRET = TEXT.rpartition("_")[2]


def refusal(*headers: str | bytes, now: float = 1500.0) -> str:
    with pytest.raises(Unauthenticated) as caught:
        authenticate(headers, TOKENS, now=now)
    return str(caught.value)


@pytest.mark.parametrize("kind", ["Bearer", "bearer", "BEARER"])
def test_a_valid_token_says_who_calls(kind: str) -> None:
    caller = authenticate([f"{kind} {TEXT}"], TOKENS, now=1999.9)
    assert caller == Caller(TOKEN.id, "blue", frozenset({Scope.ENV, Scope.SANDBOX}))


@pytest.mark.parametrize(
    ("headers", "said"),
    [
        ([], "no API token"),
        ([""], "malformed authorization header"),
        (["Bearer"], "malformed API token"),
        ([f"Basic {TEXT}"], "expected `Bearer"),
        ([TEXT], "expected `Bearer"),
        ([f"Bearer  {TEXT}"], "malformed API token"),
        ([f"Bearer {TEXT}\n"], "malformed API token"),
        ([f"Bearer {TEXT[:-1]}"], "copied in full"),
        ([f"Bearer {TEXT.upper()}"], "malformed API token"),
        (["Bearer rock_" + "\u0665" * 12 + f"_{SECRET}"], "malformed API token"),  # digits, not ASCII
        ([f"Bearer {TEXT}é"], "malformed API token"),
        ([b"Bearer r\xf6ck"], "expected one of text"),
        ([f"Bearer {TEXT}"] * 2, "got 2 authorization headers"),
        ([f"Bearer rock_{'0' * 12}_{SECRET}"], "not valid"),
        ([f"Bearer rock_{TOKEN.id}_{'0' * 64}"], "not valid"),
        (["Bearer " + "x" * 1_000_000], "malformed API token"),
    ],
    ids=range(16),
)
def test_anything_else_is_refused(headers: list[str | bytes], said: str) -> None:
    message = refusal(*headers)
    assert said in message
    assert SECRET not in message
    assert len(message) < 300


def test_a_token_ends_at_its_expiry() -> None:
    assert "expired at 1970-01-01 00:33:20 UTC" in refusal(f"Bearer {TEXT}", now=2000.0)
    forever = {TOKEN.id: replace(TOKEN, expires_at=None)}
    assert authenticate([f"Bearer {TEXT}"], forever, now=1e12).tenant == "blue"


def test_an_expired_token_is_not_confirmed_to_who_lacks_its_secret() -> None:
    guess = f"Bearer rock_{TOKEN.id}_{'0' * 64}"
    assert refusal(guess, now=3000.0) == refusal(guess, now=1500.0)


@given(st.text(max_size=200))
def test_no_text_gets_in(text: str) -> None:
    for header in (text, f"Bearer {text}", f"Bearer rock_{text}", f"Bearer rock_{TOKEN.id}_{text}"):
        if header != f"Bearer {TEXT}":
            assert SECRET not in refusal(header)


@given(st.integers(min_value=0, max_value=len(SECRET) - 1), st.sampled_from("0123456789abcdef"))
def test_one_wrong_digit_is_enough(place: int, digit: str) -> None:
    wrong = SECRET[:place] + digit + SECRET[place + 1 :]
    if wrong != SECRET:
        assert "not valid" in refusal(f"Bearer rock_{TOKEN.id}_{wrong}")


@given(st.sets(st.sampled_from(list(Scope)), min_size=1), st.sampled_from(list(Scope)))
def test_a_scope_opens_its_own_door_and_no_other(held: set[Scope], needed: Scope) -> None:
    caller = Caller("0" * 12, "blue", frozenset(held))
    if needed in held:
        caller.need(needed)
        return
    with pytest.raises(PermissionDenied, match=f"needs {needed}"):
        caller.need(needed)


def test_the_secret_is_random_and_not_kept() -> None:
    other, text = new_token("blue", ["env"])
    assert other.id != TOKEN.id
    assert text.rpartition("_")[2] not in repr(other)
    assert len(other.secret_sha256) == 32


@pytest.mark.parametrize("tenant", ["", "Blue", "-a", "a b", "a/b", "a\0", "ä", "a" * 64, "a\n"])
def test_a_tenant_has_a_plain_name(tenant: str) -> None:
    with pytest.raises(InvalidArgument, match="bad tenant name"):
        new_token(tenant, ["env"])
    assert check_tenant("a.team_1-b") == "a.team_1-b"


def test_a_token_that_opens_nothing_is_not_made() -> None:
    with pytest.raises(InvalidArgument, match="at least one scope: env, sandbox, admin"):
        new_token("blue", [])
    with pytest.raises(UnknownName, match="Did you mean 'env'"):
        new_token("blue", ["envs"])
    with pytest.raises(InvalidArgument, match="in the future"):
        new_token("blue", ["env"], expires_at=999.0, now=999.0)


async def test_tasks_act_for_the_tenant_that_started_them() -> None:
    async def later() -> str:
        await asyncio.sleep(0)
        return current_tenant()

    async def call(tenant: str) -> list[str]:
        act_for(tenant)
        await asyncio.sleep(0)
        inner = asyncio.create_task(later())
        return [current_tenant(), await inner]

    assert await asyncio.gather(call("red"), call("blue")) == [["red", "red"], ["blue", "blue"]]
    assert current_tenant() == ""
    with acting_for("red"):
        assert current_tenant() == "red"
        with pytest.raises(InvalidArgument), acting_for("blue"):
            check_tenant(current_tenant().upper())
        assert current_tenant() == "red"
    assert current_tenant() == ""
