"""Makes jobs of what requests have brought: each once, however often it is sent."""
