"""Files of the user's kind."""
