"""Storage tiers: their rates, and profiles of bandwidth that are modelled or measured."""
