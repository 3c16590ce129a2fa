"""Says who may ask: API keys, what each may do, and how much of it."""
