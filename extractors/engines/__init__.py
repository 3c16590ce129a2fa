"""Runs networks, with torch or OpenVINO, in a chosen precision."""
