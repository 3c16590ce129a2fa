"""STaTS, ranked attention: streams of cells or boxes into words, through two branches that are weighed."""
