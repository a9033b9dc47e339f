"""`ale train`, `sft`, `eval`, `rollout`, `lineage`: runs, their folders and what a person sees of them."""

from rock_env.moved import former

__getattr__ = former("ale.training")
