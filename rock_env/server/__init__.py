"""The service: core, and the adapters that put it on a wire."""
