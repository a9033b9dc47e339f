"""Benchmarks: `python -m benchmarks.NAME [--quick]`, last line one JSON object."""
