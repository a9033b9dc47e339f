"""Runs, watched from outside: how one is at this moment, and who is told what becomes of it."""
