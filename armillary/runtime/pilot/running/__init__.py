"""What a technique of this arena is, how a real case is run and timed, and how other runtimes are driven."""
