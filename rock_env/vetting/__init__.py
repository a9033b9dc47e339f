"""Vetting: whether an environment and its tasks are fit to train on, found out by playing them."""
