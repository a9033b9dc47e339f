"""How one replica knows another: certificates of the store's own authority, and passes for calls that it forwards."""
