"""Groups, their collectives and requests in simulated time, among the traffic of others."""
