"""The quality that fewer bits cost: the indicator ω, and a small trained model on which perplexity is measured."""
