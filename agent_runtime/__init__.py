"""Any agent becomes token-exact turns and trajectories.

`run` plays one rollout, `agents` decide what to send, `types` are the records, `policy` what is needed of a model,
`render` a chat template over a tokenizer, `graph` reads a record, `store` keeps it, `replay` re-executes it.
"""
