"""Every call over HTTP."""
