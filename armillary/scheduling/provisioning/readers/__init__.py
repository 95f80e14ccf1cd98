"""Problems from files: JSON, the EUA data set, and GraphML networks."""
