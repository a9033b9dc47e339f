"""`ale train`, `sft`, `eval`, `rollout`, `lineage`: runs, their folders and what a person sees of them."""
