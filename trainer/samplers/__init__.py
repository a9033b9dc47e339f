"""Samplers: what answers a prompt with sampled tokens. One protocol (`trainer.protocols`), several implementations."""
