"""The families of pretrained captioners, an adapter each: how it is opened, shown frames and read back."""
