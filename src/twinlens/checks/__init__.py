"""Checks: tests from other papers, on the methods of a run or called as functions."""
