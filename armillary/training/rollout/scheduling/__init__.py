"""The parts of RollPacker and Seer that decide what runs where and when."""
