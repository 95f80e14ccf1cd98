"""What fewer bits cost in quality: the indicator ω, and a small trained model on which perplexity is measured."""
