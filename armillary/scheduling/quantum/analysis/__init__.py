"""What each part brings, and what a fidelity threshold asks for."""
