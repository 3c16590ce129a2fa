"""The VATEX challenge 2019: pictures, motion, sound and objects into words, by three kinds of attention."""
