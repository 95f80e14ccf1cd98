"""What each part of EquilibrIO brings, and what its fairness costs."""
