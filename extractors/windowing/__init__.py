"""Cuts frames into windows, batches these and joins the rows to streams."""
