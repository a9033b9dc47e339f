"""Sandbox lifecycle, one module per backend."""
