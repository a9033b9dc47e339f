"""Learning: the only package that may import torch, ray, vllm or deepspeed."""
