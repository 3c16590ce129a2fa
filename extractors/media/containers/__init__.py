"""Opens media files and learns what they hold: packets, their times, what is missing."""
