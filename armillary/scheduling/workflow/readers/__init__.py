"""Readers of workflows, tables of costs and tables of measured configurations."""
