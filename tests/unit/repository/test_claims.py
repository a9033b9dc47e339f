"""The lint of docstrings and skips finds what it is to find, and nothing else."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

SCRIPT = Path(__file__).parents[3] / "scripts" / "check_claims.py"


@pytest.fixture(scope="module")
def lint() -> ModuleType:
    spec = importlib.util.spec_from_file_location("check_claims", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def stale(lint: ModuleType, docstring: str) -> list[str]:
    known = lint.Known()
    known.add("rock_env/server/lives.py", "import os\nclass Lives:\n    held: int = 0\n")
    known.add("rock_env/wire/rest_routes.py", f'"""{docstring}"""\nROUTES = {{}}\n')
    known.add("docs/ipa.md", "")
    return [word for _, word in known.stale()]


@pytest.mark.parametrize(
    "word",
    [
        "rock_env.server.gone",
        "rock_env.server.held",
        "rock_env/server/gone.py",
        "rock_env.server.lives.Gone",
        "rock_env.server.lives.Lives.gone",
    ],
)
def test_a_name_of_ours_that_is_gone_is_found(lint: ModuleType, word: str) -> None:
    assert stale(lint, f"Reads what `{word}` wrote.") == [word]


@pytest.mark.parametrize(
    "who", ["`gone`", "`server/gone`", "`lives` and `server/gone/deeper`", "each server, by `gone`"]
)
def test_a_user_that_is_gone_is_found(lint: ModuleType, who: str) -> None:
    assert len(stale(lint, f"Used by {who}. It keeps nothing.")) == 1


@pytest.mark.parametrize(
    "text",
    [
        "Used by `lives`, `server/lives` and `rock_env/server`.",
        "See `rock_env.server.lives.Lives.held`, `rock_env/wire/rest_routes.py`, `rock_env.wire.rest_routes.ROUTES`.",
        "An entry point of `ale.envs`, or a file `ale/recipes/ENV.toml`.",
        "Words of others: `asyncio.sleep`, `/etc/passwd`, `x.y`, `any`, `rock_env`.",
    ],
)
def test_what_is_there_and_what_is_not_ours_are_passed_over(lint: ModuleType, text: str) -> None:
    assert stale(lint, text) == []


@pytest.mark.parametrize(
    "body",
    [
        "made = await act()\n    if not made:\n        pytest.skip('no')",
        "if not await backend.can_graft():\n        made = await act()\n        pytest.skip('no')",
        "try:\n        act()\n    except InvalidArgument as error:\n        pytest.skip(str(error))",
        "try:\n        act()\n    except (OSError, Exception):\n        pytest.skip('no')",
    ],
)
def test_a_skip_that_hides_a_failure_is_found(lint: ModuleType, body: str) -> None:
    source = f"from rock_env.errors import InvalidArgument\nasync def test_it():\n    {body}\n"
    assert len([*lint.hiding_skips(source)]) == 1


@pytest.mark.parametrize(
    "body",
    [
        "if why := await why_not_fenced():\n        pytest.skip(why)\n    await act()",
        "found = await asyncio.to_thread(look)\n    if not found:\n        pytest.skip('no')\n    await act()",
        "try:\n        find()\n    except OSError:\n        pytest.skip('no')\n    await act()",
    ],
)
def test_a_skip_for_what_is_missing_is_none(lint: ModuleType, body: str) -> None:
    assert [*lint.hiding_skips(f"async def test_it():\n    {body}\n")] == []
