"""dualAFR: the layers of one network into words, each from a place and a level of abstraction."""
