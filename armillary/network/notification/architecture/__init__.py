"""User interrupts of x86 processors, modelled state by state."""
