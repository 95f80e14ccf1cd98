"""What each part of CPLX brings, and what the dial would have brought."""
