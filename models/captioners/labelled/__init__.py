"""Captioners of other folders that know labels and remember sentences beside: models/labels."""
