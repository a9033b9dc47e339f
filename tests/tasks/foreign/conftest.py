"""The tests in here belong to tasks: they are run in sandboxes, never by this project's pytest."""

collect_ignore_glob = ["*"]
