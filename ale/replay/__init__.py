"""Recorded trajectories: list them, show them turn by turn, run them again."""
