"""How the predictors are trained."""
