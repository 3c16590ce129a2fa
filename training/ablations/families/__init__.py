"""Lists the ablation rows of each captioner, one file a paper."""
