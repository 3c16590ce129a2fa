"""From captioned data to a checkpoint and a table of scores."""
