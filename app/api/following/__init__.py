"""Turns the streams of jobs that clients follow into events as they happen, with one reader for all."""
