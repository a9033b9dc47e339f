"""The sampler over Transformers models: caches of unequal length, continuous batching, memory of sessions."""
