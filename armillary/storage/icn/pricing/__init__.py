"""What caching costs: prices, and the bill for what a run used."""
