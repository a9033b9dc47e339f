"""Every call over HTTP."""

from typing import TYPE_CHECKING

from rock_env.moved import former

if not TYPE_CHECKING:
    __getattr__ = former(__name__)
