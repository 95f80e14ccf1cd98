"""A technique part by part."""
