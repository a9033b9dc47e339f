"""Sandboxes made of processes in namespaces."""
