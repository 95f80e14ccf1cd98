"""The data transport layer: transactions of publishers and subscribers."""
