# Every verb sets up what it needs in .venv; `make run` and `make test` work on a fresh machine.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt

.PHONY: run test test-full test-gpu lint bench bench-gpu bench-check bench-scale docs cards commands reference tutorials charting weights clean

run: $(VENV)/.core
	$(BIN)/verax run smerf-quick

# Two processes with a thread each finish in little more than half the time of one with two.
test: $(VENV)/.dev
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -m "not slow and not gpu" -n 2 --dist loadfile
	OMP_NUM_THREADS=1 $(BIN)/python tests/pretend/run.py

# The code paths of a GPU: on one if there is one, else on a pretended one, whose operations run on the CPU.
test-gpu: $(VENV)/.dev
	OMP_NUM_THREADS=1 $(BIN)/python tests/pretend/run.py

# The proofs of methods once more with every fast path taken, and with none.
PROOFS = tests/test_engine.py tests/test_axioms.py tests/test_matrix.py tests/test_pitfalls.py tests/test_sharing.py \
	tests/test_gradients.py tests/test_cams.py
test-full: $(VENV)/.dev
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -m "not gpu" -n 2 --dist loadfile
	OMP_NUM_THREADS=1 $(BIN)/python tests/pretend/run.py -m gpu -n 2
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist loadfile --fast-paths always $(PROOFS)
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist loadfile --fast-paths never $(PROOFS)

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

# All of docs/performance.md that a CPU can measure, and the page; under 20 minutes on two idle cores.
bench: $(VENV)/.bench
	$(BIN)/python benchmarks/metric_races.py --write
	$(BIN)/python benchmarks/growth.py --write
	$(BIN)/python benchmarks/league.py --write
	$(BIN)/python benchmarks/harness.py --write
	$(BIN)/python benchmarks/speed.py --write --limit-seconds 780
	$(BIN)/python benchmarks/correctness.py --write
	$(BIN)/python benchmarks/render.py

# The same on a GPU; peers that are not installed are left out and named.
bench-gpu: $(VENV)/.bench
	$(BIN)/python benchmarks/speed.py --device cuda --limit-seconds 400 --write
	$(BIN)/python benchmarks/growth.py --device cuda --write
	$(BIN)/python benchmarks/journeys.py --only smerf,sst --write
	$(BIN)/python benchmarks/kernels.py
	$(BIN)/python benchmarks/render.py

# A few rows again: fails where a ratio is a third worse than the committed one, twice.
bench-check: $(VENV)/.bench
	$(BIN)/python benchmarks/check.py
	$(BIN)/python benchmarks/render.py --check

# Studies of a million units, trainings, and memory of 10,000 samples: long, and with no page of their own.
bench-scale: $(VENV)/.bench
	$(BIN)/python benchmarks/textbox.py
	$(BIN)/python benchmarks/training.py --tasks simple-fr
	$(BIN)/python benchmarks/methods.py
	$(BIN)/python benchmarks/memory.py
	$(BIN)/python benchmarks/climate.py
	$(BIN)/python benchmarks/alignment.py
	$(BIN)/python benchmarks/scale.py

docs: $(VENV)/.docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

# Write the page of commands and the names that shells complete; a test says when they are out of date.
commands: $(VENV)/.core
	$(BIN)/python tools/commands.py

# Write the method cards and their pictures from the registry; a test says when they are out of date.
cards: $(VENV)/.core
	$(BIN)/python tools/cards.py

# Build the charting library that reports carry (needs node and npm).
charting:
	$(PYTHON) tools/charting.py

# Write the reference and the gallery from the code; a test says when they are out of date.
reference: $(VENV)/.core
	$(BIN)/python tools/reference.py

# Run the tutorials, fill in what they print and draw their pictures (minutes).
tutorials: $(VENV)/.dev
	$(BIN)/python tools/tutorials.py

# Train the shipped networks again (minutes on a GPU, hours on a CPU).
SETTINGS := simple-fr simple-nr complex-fr complex-cr1 complex-cr2 complex-cr3 complex-cr4
weights: $(VENV)/.core
	$(BIN)/verax train $(SETTINGS:%=textbox/%) --network cnn4 --no-early-stop --out src/verax/networks/shipped
	$(BIN)/verax train textbox/simple-fr textbox/simple-nr --network cnn3 --no-early-stop --out src/verax/networks/shipped
	$(BIN)/verax train shapes --network shapes-cnn --no-early-stop --out src/verax/networks/shipped

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.core: pyproject.toml constraints.txt | $(VENV)/bin/python
	$(PIP) --editable .
	touch $@

$(VENV)/.dev: pyproject.toml constraints.txt | $(VENV)/bin/python
	$(PIP) --editable ".[dev]"
	touch $@ $(VENV)/.core

$(VENV)/.bench: pyproject.toml constraints.txt | $(VENV)/bin/python
	$(PIP) --editable ".[bench]"
	touch $@ $(VENV)/.core

$(VENV)/.docs: pyproject.toml constraints.txt | $(VENV)/bin/python
	$(PIP) --editable ".[docs]"
	touch $@ $(VENV)/.core

clean:
	rm -rf $(VENV) runs site .mypy_cache .pytest_cache .ruff_cache .import_linter_cache
