"""G2L: frames, clips and the regions of chosen key frames into words."""
