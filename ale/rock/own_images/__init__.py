"""The images of ROCK itself, made without an engine: its server, the guest in every pod, the tools of tasks, the trainer."""
