"""The `vllm` sampler: vLLM's engine in this process, stepped token by token. vLLM is imported when one is built."""
