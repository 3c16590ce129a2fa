"""From folders in the Hugging Face format to captions with their attention."""
