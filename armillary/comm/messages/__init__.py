"""Messages: envelopes, buffers and their layouts, matching, and requests."""
