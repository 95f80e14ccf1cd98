"""The parts that the strategies share: the problem, its symbolic phase, the assembler, and assembly on a device."""
