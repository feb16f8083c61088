"""What everything stands on: arrays, maps, ordering, randomness by name, the probe table, and how a model is called."""
