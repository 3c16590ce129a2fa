"""Turns batches into better parameters: losses, phases, the training loop."""
