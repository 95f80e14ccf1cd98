"""What makes a protocol sound, and what each role does in it."""
