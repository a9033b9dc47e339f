"""Copies of a run's checkpoints in a bucket of S3, from which the run goes on on another machine (ADR 0091)."""
