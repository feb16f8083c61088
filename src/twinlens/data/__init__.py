"""Data: labelled samples with stable ids, read one at a time, and attribution maps computed elsewhere."""
