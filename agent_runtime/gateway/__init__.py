"""The server that agents of others take for a model provider's: sessions, HTTP, pull mode, recording."""
