"""A deduplicated store on a real disk."""
