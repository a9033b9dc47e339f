"""What a connection may cost before it has shown a token: the process at gRPC's TCP port, and whom it asks."""
