PYTHON ?= python3
BIN := .venv/bin

.PHONY: demo test check format clean

# Everything that has to hold: format, lint, types, doctests, tests.
test: check
	$(BIN)/pytest

# A first look: two explanations of a scikit-learn model compared.
demo: .venv/installed
	$(BIN)/python examples/breast_cancer.py

check: .venv/installed
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

format: .venv/installed
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

.venv/installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[dev]"
	touch $@

clean:
	rm -rf .venv build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis
