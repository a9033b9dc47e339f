"""How a learner's ranks share its work and its memory: one module for each kind, found by entry point `ale.parallelisms`."""
