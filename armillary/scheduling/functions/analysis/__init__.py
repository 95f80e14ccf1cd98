"""What each part of DHRT brings."""
