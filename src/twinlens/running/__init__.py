"""Running: the run directory, its manifest, units of work and the engines that run them, and results."""
