"""Inference and train engines."""
