"""What a server says of itself: log lines and traces."""
