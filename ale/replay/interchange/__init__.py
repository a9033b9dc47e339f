"""Rollouts in the formats of others: ATIF (Harbor), chat messages as JSON lines, and SWE-agent's `.traj`."""
