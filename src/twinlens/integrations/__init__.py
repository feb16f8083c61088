"""Integrations: explanations of other libraries in twinlens, and our metrics in theirs."""
