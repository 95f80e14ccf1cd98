"""What a transformer costs: flops, bytes and messages as exact counts, and modelled seconds on a calibrated device."""
