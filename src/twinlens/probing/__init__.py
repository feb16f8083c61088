"""Probing: maps, ranking, exchange, calling a model, and the probe table that they leave behind."""
