"""The environment's arguments."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from rock_env.spec import EnvParams
from sandboxes.browser.actions import ActionSet

__all__ = ["BrowserParams", "narrow"]


class BrowserParams(EnvParams):
    """Arguments of the `browser` environment."""

    suite: Literal["sites", "miniwob", "webshop"] = "sites"
    """The tasks: those of the sites that come along, MiniWoB++'s, for which the package `miniwob` is needed, or those of
    the environment `webshop`, with its rewards."""
    site: Literal["all", "calendar", "files", "login", "mail", "signup", "stock", "wiki"] = "all"
    """Only tasks of this site; of the suite `sites` alone."""
    actions: ActionSet = "bid"
    """The actions there are: `bid` acts on elements by their ids, `coord` on places by mouse and keyboard, `all` on both."""
    max_turns: int = Field(default=30, ge=1, le=1000)
    """After so many actions the episode is cut off."""
    max_tree_chars: int = Field(default=12_000, ge=500, le=100_000)
    """Of a page's tree the agent sees so much; what is cut off is said."""
    pictures: bool = False
    """A picture of the page comes with each observation, as an artifact; the last 50 are also kept in the sandbox, where
    `info["picture"]` is the path."""
    record: bool = False
    """The requests (HAR) and Playwright's trace of the episode come with its grade, as artifacts."""


narrow = BrowserParams.narrowed
