"""The classifiers and detectors of novelty, each from an array of features to a score per row."""
