"""`ale agent`: CLI agents of others."""
