"""Agents: who decides what to send to the policy."""
