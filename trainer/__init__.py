"""Learning: the only package that may import torch, ray, vllm or deepspeed."""

from rock_env.moved import tell_of_old_names

tell_of_old_names()
