"""Maps to use: in memory, durable, as files, for data frames, and which one is fastest here."""
