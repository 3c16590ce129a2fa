"""Commands of who has videos: captions, segments, moments, features; here or by a running service."""
