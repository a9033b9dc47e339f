"""Rollouts for others: packs of a run, ATIF (Harbor), chat messages as JSON lines, and SWE-agent's `.traj`."""
