"""A run: its directory and manifest, its plan, the work, the engines and the results."""
