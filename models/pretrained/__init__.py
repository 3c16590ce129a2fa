"""Opens pretrained captioners in the Hugging Face format: frames in, captions with attention out."""
