"""Turns word probabilities into hypotheses: greedy, beam search, sampling."""
