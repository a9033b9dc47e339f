"""Who gets a place on a node: admission, fair queue, quotas."""
