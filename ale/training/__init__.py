"""`ale train`, `sft`, `eval`, `rollout`, `lineage`: runs, their folders and what a person sees of them."""

from typing import TYPE_CHECKING

from rock_env.moved import former

if not TYPE_CHECKING:
    __getattr__ = former(__name__)
