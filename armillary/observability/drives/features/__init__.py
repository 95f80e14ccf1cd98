"""What the predictors read about a drive's days."""
