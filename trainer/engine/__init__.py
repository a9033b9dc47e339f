"""Engines: what samples from a policy (inference) and what updates it (train)."""
