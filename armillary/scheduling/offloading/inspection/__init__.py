"""Gaia's Execution Mode Identifier: what a source says about the device that it needs. Nothing is executed or imported."""
