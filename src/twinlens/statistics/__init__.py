"""Statistics: bootstrap intervals, paired comparison of methods, diagnostics and sensitivity."""
