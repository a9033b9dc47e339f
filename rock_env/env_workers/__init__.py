"""Environments in worker processes: the pool on the server's side, the host on the other."""
