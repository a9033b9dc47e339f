"""Planted bugs: the families of them, and what a family changes in a file."""
