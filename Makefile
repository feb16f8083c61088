PYTHON ?= python3
BIN := .venv/bin

.PHONY: demo test fast fuzz torture bench check format docs tutorials clean

# Everything that has to hold: format, lint, types, doctests, tests.
# One thread each: small tests spend most of their time waiting for a second one. A Ray cluster needs both cores.
test: check
	OMP_NUM_THREADS=1 $(BIN)/pytest -n 2 -m "not ray"
	OMP_NUM_THREADS=1 $(BIN)/pytest -m ray

# The same within two minutes: without Ray, browser, killed processes and whatever else takes long.
fast: check
	OMP_NUM_THREADS=1 $(BIN)/pytest -n 2 -m "not slow and not ray and not browser and not kills"

# Bad inputs of every kind, made from a seed: `make fuzz MINUTES=60 SEED=3`. A short part of it is among the tests.
fuzz: .venv/installed
	OMP_NUM_THREADS=1 $(BIN)/python -m tests.fuzz.fuzzing --minutes $(or $(MINUTES),10) --seed $(or $(SEED),0)

# Commands killed at random moments, two at once, full disks, a Ray cluster: `make torture KILLS=1000 RAY=20 SEED=3`.
# A short part of it is among the tests.
torture: .venv/installed
	OMP_NUM_THREADS=1 $(BIN)/python -m tests.torture.torturing --kills $(or $(KILLS),1000) --ray $(or $(RAY),20) --seed $(or $(SEED),0)

# Every ratio that docs/performance.md promises, within a quarter of an hour; writes its table.
bench: .venv/installed
	$(BIN)/python benchmarks/bench.py

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

# What docs and CONTRIBUTING hold of the code: the table of options, and the drawing of the layers.
docs: .venv/installed
	$(BIN)/python docs/generate.py

# Execute the notebooks in docs/tutorials and store what they show, in place; of one: `make tutorials NAMES=images`.
tutorials: .venv/installed
	$(BIN)/python docs/tutorials/execute.py $(NAMES)

.venv/installed: pyproject.toml constraints.txt setup.py $(wildcard src/twinlens/imputation/*.[ch])
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[dev]"
	touch $@

clean:
	rm -rf .venv build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis
