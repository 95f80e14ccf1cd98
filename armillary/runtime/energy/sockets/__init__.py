"""What a program of one's own uses: the estimator, the streaming form and the hint on mappings."""
