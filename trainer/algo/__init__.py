"""Algorithms, one file each, pure functions."""
