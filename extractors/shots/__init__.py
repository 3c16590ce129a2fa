"""Cuts a film into segments, and keeps of each the frames that a captioner wants, in one decode."""
