"""Low-rank adapters of pretrained captioners: trained, kept in a folder, merged into their base again."""
