PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin

.PHONY: demo test fast coverage fuzz torture bench check pythons format hooks docs docs-serve tutorials dist clean

# Everything that has to hold: format, lint, types, doctests, tests.
# One thread each: small tests spend most of their time waiting for a second one. A Ray cluster needs both cores.
test: check
	OMP_NUM_THREADS=1 $(BIN)/pytest -n 2 -m "not ray"
	OMP_NUM_THREADS=1 $(BIN)/pytest -m ray

# The same within two minutes: without Ray, browser, killed processes and whatever else takes long.
fast: check
	OMP_NUM_THREADS=1 $(BIN)/pytest -n 2 -m "not slow and not ray and not browser and not kills"

# Which lines of src no test runs, in this process or in those that tests start; fewer than 92% of them run is a failure.
coverage: $(VENV)/installed
	OMP_NUM_THREADS=1 $(BIN)/pytest -n 2 -m "not ray" --cov --cov-report=term --cov-fail-under=92

# Bad inputs of every kind, made from a seed: `make fuzz MINUTES=60 SEED=3`. A short part of it is among the tests.
fuzz: $(VENV)/installed
	OMP_NUM_THREADS=1 $(BIN)/python -m tests.fuzz.fuzzing --minutes $(or $(MINUTES),10) --seed $(or $(SEED),0)

# Commands killed at random moments, two at once, full disks, a Ray cluster: `make torture KILLS=1000 RAY=20 SEED=3`.
# A short part of it is among the tests.
torture: $(VENV)/installed
	OMP_NUM_THREADS=1 $(BIN)/python -m tests.torture.torturing --kills $(or $(KILLS),1000) --ray $(or $(RAY),20) --seed $(or $(SEED),0)

# Every ratio that docs/performance.md promises, within a quarter of an hour; writes its table.
bench: $(VENV)/installed
	$(BIN)/python benchmarks/bench.py

# A first look: eight explanations of a network for handwritten digits, evaluated from both sides.
demo: $(VENV)/installed
	$(BIN)/twinlens demo

check: $(VENV)/installed
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	git ls-files -z | xargs -0 $(BIN)/python -m tests.hygiene

# What can be said of the other Pythons without torch for them: types as they see them, and where an interpreter is there,
# that it compiles every module and builds the wheel. To run all tests: make test PYTHON=python3.12 VENV=.venv-3.12
pythons: $(VENV)/installed
	$(BIN)/python -m tests.pythons

format: $(VENV)/installed
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

# Let git run these checks before every commit, on what is committed.
hooks: $(VENV)/installed
	$(BIN)/pre-commit install

# What docs and CONTRIBUTING hold of the code (options, commands, the drawing of the layers), and the site: site/index.html.
docs: $(VENV)/installed
	$(BIN)/python docs/generate.py
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

# The site at http://127.0.0.1:8000, built again whenever a page changes.
docs-serve: $(VENV)/installed
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs serve

# Execute the notebooks in docs/tutorials and store what they show, in place; of one: `make tutorials NAMES=images`.
tutorials: $(VENV)/installed
	$(BIN)/python docs/tutorials/execute.py $(NAMES)

# Wheel and sdist: built, checked, and the wheel installed into a fresh environment and tried there. Takes some minutes.
dist: $(VENV)/installed
	rm -rf build dist
	$(BIN)/python -m build
	$(BIN)/twine check --strict dist/*
	$(BIN)/python -m tests.distribution dist

$(VENV)/installed: pyproject.toml constraints.txt setup.py $(wildcard src/twinlens/imputation/*.[ch])
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[dev]"
	touch $@

clean:
	rm -rf .venv .venv-* build dist site .mypy_cache .pytest_cache .ruff_cache .hypothesis
