"""What each part brings, and what each decision cost."""
