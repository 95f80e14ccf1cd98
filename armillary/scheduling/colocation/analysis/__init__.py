"""What each part of Hestia brings."""
