"""Static advice for real caches."""
