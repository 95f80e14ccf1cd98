"""How much sun is coming: a learned forecast of clearness, and the plain ones beside it."""
