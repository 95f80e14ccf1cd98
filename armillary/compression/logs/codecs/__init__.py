"""Codecs by which numcodecs compresses logs."""
