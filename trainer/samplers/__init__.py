"""Samplers: what answers a prompt with sampled tokens. One protocol (`protocol`), several implementations."""
