"""Imputation: imputers that fill in removed features, and the solver behind the linear one."""
