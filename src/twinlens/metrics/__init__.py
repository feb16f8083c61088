"""Metrics: from probe tables to curves, each metric one value with its options."""
