"""The protocols that every technique meets: sound ones, broken ones, ones without a mixed choice, and families that grow."""
