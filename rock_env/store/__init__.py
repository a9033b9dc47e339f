"""Where the records of sandboxes live: one Protocol, `base.SandboxStore`, and its implementations."""
