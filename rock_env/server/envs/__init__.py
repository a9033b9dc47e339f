"""The environments of a server: episodes, their boxes and their branches."""
