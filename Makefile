PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin

.PHONY: demo test test-busy fast coverage fuzz torture bench check pythons format hooks docs docs-serve tutorials dist clean

# Format, lint, types, doctests, tests.
# One thread each: small tests would mostly wait for a second one. A Ray cluster needs both cores.
test: check
	OMP_NUM_THREADS=1 $(BIN)/pytest -n 2 -m "not ray"
	OMP_NUM_THREADS=1 $(BIN)/pytest -m ray

# The same next to four busy loops, which this target starts and ends: no test may depend on how busy the machine is.
test-busy: $(VENV)/installed
	@for k in 1 2 3 4; do sh -c 'while :; do :; done' & loops="$$loops $$!"; done; \
	trap 'kill $$loops' EXIT INT TERM; $(MAKE) test

# The same within two minutes: without Ray, browser, killed processes and other slow tests.
fast: check
	OMP_NUM_THREADS=1 $(BIN)/pytest -n 2 -m "not slow and not ray and not browser and not kills"

# Lines of src that no test runs, in this process or in those that tests start; fails below 92%.
coverage: $(VENV)/installed
	OMP_NUM_THREADS=1 $(BIN)/pytest -n 2 -m "not ray" --cov --cov-report=term --cov-fail-under=92

# Invalid inputs of every kind, generated from a seed: `make fuzz MINUTES=60 SEED=3`. The tests run a short part of it.
fuzz: $(VENV)/installed
	OMP_NUM_THREADS=1 $(BIN)/python -m tests.fuzz.fuzzing --minutes $(or $(MINUTES),10) --seed $(or $(SEED),0)

# Commands killed at random moments, two at once, full disks, a Ray cluster: `make torture KILLS=1000 RAY=20 SEED=3`.
# The tests run a short part of it.
torture: $(VENV)/installed
	OMP_NUM_THREADS=1 $(BIN)/python -m tests.torture.torturing --kills $(or $(KILLS),1000) --ray $(or $(RAY),20) --seed $(or $(SEED),0)

# Every ratio in docs/performance.md, within a quarter of an hour; writes its table.
bench: $(VENV)/installed
	$(BIN)/python benchmarks/bench.py

# A first look: eight methods on a network for handwritten digits, evaluated from both sides.
demo: $(if $(wildcard $(VENV)/installed),$(VENV)/installed,$(VENV)/demo-installed)
	$(BIN)/twinlens demo

check: $(VENV)/installed
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	git ls-files -z | xargs -0 $(BIN)/python -m tests.hygiene

# Checks for other Python versions without torch: types, and, if an interpreter is installed,
# that it compiles every module and builds the wheel. To run all tests: make test PYTHON=python3.12 VENV=.venv-3.12
pythons: $(VENV)/installed
	$(BIN)/python -m tests.pythons

format: $(VENV)/installed
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

# Run these checks as a pre-commit hook.
hooks: $(VENV)/installed
	$(BIN)/pre-commit install

# The files made from the code (options, commands, layers, shell completion), and the site: site/index.html.
docs: $(VENV)/installed
	$(BIN)/python docs/generate.py
	$(BIN)/python docs/pages.py
	$(BIN)/zensical build --clean --strict

# The site at http://localhost:8000, rebuilt when a page in build/pages changes; docs/pages.py writes these from docs.
docs-serve: $(VENV)/installed
	$(BIN)/python docs/pages.py
	$(BIN)/zensical serve

# Execute the notebooks in docs/tutorials and store their output in place; only one: `make tutorials NAMES=images`.
tutorials: $(VENV)/installed
	$(BIN)/python docs/tutorials/execute.py $(NAMES)

# Build and check wheel and sdist, and try the wheel in a fresh environment. Takes some minutes.
dist: $(VENV)/installed
	rm -rf build dist
	$(BIN)/python -m build
	$(BIN)/twine check --strict dist/*
	$(BIN)/python -m tests.distribution dist

# The demo needs neither Ray nor the tools of developers.
$(VENV)/demo-installed: pyproject.toml constraints.txt setup.py $(wildcard src/twinlens/imputation/*.[ch])
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[demo]"
	touch $@

$(VENV)/installed: pyproject.toml constraints.txt setup.py $(wildcard src/twinlens/imputation/*.[ch])
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[dev]"
	touch $@

clean:
	rm -rf .venv .venv-* build dist site .mypy_cache .pytest_cache .ruff_cache .hypothesis
