"""Lets any captioner read what classifiers name in a video, and says which word came from which label."""
