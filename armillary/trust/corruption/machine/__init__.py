"""The modelled processor, whose counters stand in for those of a real one."""
