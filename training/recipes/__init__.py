"""Describes how each captioner is trained: steps, rates, schedules, data."""
