"""Says which streams feed which captioner, and computes them from frames."""
