"""Packing, quality of service and rounds of migration."""
