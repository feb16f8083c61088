"""The laboratory: tasks with a known answer, and tests of the metrics and of attribution methods themselves."""
