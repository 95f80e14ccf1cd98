"""Users' files: pods of clusters that really ran, and the sun that really shone."""
