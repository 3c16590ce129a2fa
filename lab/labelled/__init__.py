"""Makes the captioner that knows labels: what was written for it, what it expects, its confidence."""
