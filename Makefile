PYTHON ?= python3
BIN := .venv/bin

.PHONY: demo test check format clean

# Everything that has to hold: format, lint, types, doctests, tests.
test: check
	$(BIN)/pytest

# A first look: eight explanations of a network for handwritten digits, evaluated from both sides.
demo: .venv/installed
	$(BIN)/twinlens demo

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
