"""Parts that the placements share: a placement of adapters on GPUs, and its trial in the simulator."""
