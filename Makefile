# Two commands do everything on a fresh machine: `make sweep` and `make test`.
PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready
export OMP_NUM_THREADS ?= 1

.PHONY: sweep test check drill drill-faults format clean bench bench-gpu

# The main sweep on the embedded corpus; run again, it does only what is new.
sweep: $(READY)
	$(BIN)/python sweeps/gru_ablation.py

test: $(READY)
	$(BIN)/python -m pytest -m "not slow" -n 2 --dist loadgroup

check: $(READY)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/pyright
	$(BIN)/lint-imports
	$(BIN)/codespell lmzoo sweeps analysis tests docs README.md CONTRIBUTING.md CHANGELOG.md

# A cluster of real hosts on this machine, and what may befall it: needs root (docs/cluster.md).
drill: $(READY)
	$(BIN)/python -m pytest drills/test_sweep.py drills/test_strangers.py -x -v -o addopts="" --timeout 7200

# Thirty seeded faults over one sweep; every record must come out as if undisturbed (docs/robustness.md).
drill-faults: $(READY)
	$(BIN)/python -m pytest drills/test_faults.py -x -s -o addopts="" --timeout 14400

# Ratios beside named rivals, one thread; JSON to runs/bench, tables to docs/performance.md.
bench: $(READY)
	for name in scan fuse mixture words ranking growth; do $(BIN)/python benchmarks/$$name.py || exit 1; done
	$(BIN)/python benchmarks/publish.py

# On a machine with a GPU, torch and what this package itself needs: no Ray, no .venv (docs/performance.md).
bench-gpu:
	PYTHONPATH=. $(PYTHON) benchmarks/gpu.py
	PYTHONPATH=. $(PYTHON) benchmarks/publish.py

format: $(READY)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

$(READY): pyproject.toml constraints.txt
	test -d .venv || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet -c constraints.txt -e ".[all]"
	touch $(READY)

clean:
	rm -rf .venv runs .pytest_cache .ruff_cache .hypothesis
