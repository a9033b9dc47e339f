"""Learners: what turns a batch and a loss into an update, in one process or in several ranks, and what memory that takes."""
