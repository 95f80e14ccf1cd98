"""What a sharding costs at any scale: bytes of state per GPU and seconds of a step, modelled."""
