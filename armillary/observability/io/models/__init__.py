"""Language models that a user may put behind the diagnosis."""
