"""What a layer costs on a device, and the linear latency model that planners use instead."""
