"""The engine that comes with Armillary, behind an OpenAI-compatible endpoint."""
