"""Trees and other learners over one row per drive and day."""
