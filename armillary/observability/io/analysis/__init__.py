"""Many logs side by side."""
