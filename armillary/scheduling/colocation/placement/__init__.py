"""Who holds which hyper-threads, and how a place is chosen."""
