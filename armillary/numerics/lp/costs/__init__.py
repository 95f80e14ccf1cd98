"""What a method costs on a device that is not here, and whether writing a program into analogue memory pays."""
