"""Agents: what stands between an environment's observations and a policy. One module each."""
