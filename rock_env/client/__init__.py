"""The client SDK."""

from rock_env.client.client import Client, EnvDescription
from rock_env.client.credentials import Credentials
from rock_env.client.env import AsyncEnv
from rock_env.client.sandbox.handle import AsyncSandbox
from rock_env.client.sandbox.sandboxes import Sandboxes

__all__ = ["AsyncEnv", "AsyncSandbox", "Client", "Credentials", "EnvDescription", "Sandboxes"]
