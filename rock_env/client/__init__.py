"""The client SDK."""

from rock_env.client.client import Client, EnvDescription
from rock_env.client.credentials import Credentials
from rock_env.client.env import AsyncEnv

__all__ = ["AsyncEnv", "Client", "Credentials", "EnvDescription"]
