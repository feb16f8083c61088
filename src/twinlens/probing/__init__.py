"""Probing: from a model, maps, a schedule and an imputer to the probe table; and the fastest way to call a model."""
