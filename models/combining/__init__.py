"""Lets several captioners write together, by ensembling or reranking."""
