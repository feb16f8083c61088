"""Suites: named and versioned tasks, submissions of their results, and the table that compares methods by them."""
