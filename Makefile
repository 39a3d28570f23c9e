# Two commands do everything on a fresh machine: `make sweep` and `make test`.
PYTHON ?= python3
BIN := .venv/bin
SWEEP := .venv/.sweep
ALL := .venv/.all
INSTALL := $(BIN)/python -m pip install --quiet --constraint constraints.txt
export OMP_NUM_THREADS ?= 1
export NO_MKDOCS_2_WARNING = 1

.PHONY: sweep test test-lab test-zoo lowest newest quick check check-types check-docs docs results reference lock drill drill-access drill-slurm drill-faults drill-machines format clean bench bench-gpu bench-gpu-bundle

# The main sweep on the embedded corpus. Run again, it trains only what is new.
sweep: $(SWEEP)
	$(BIN)/python sweeps/gru_ablation.py

# Tests that start Ray run one after another and mostly wait, so there is a third process. Ray would
# start its workers at niceness 15, where they would wait for the other processes. Without a cache of
# bytecode, each process compiles all files again.
TEST := PYTHONDONTWRITEBYTECODE= RAY_worker_niceness=0 $(BIN)/python -m pytest -m "not slow" -n 3 --dist loadgroup
test: $(ALL)
	$(TEST)

# One house: the laboratory with its commands, or the zoo.
test-lab: $(ALL)
	$(TEST) tests/lab tests/base tests/trainables tests/cli

test-zoo: $(ALL)
	$(TEST) --ignore tests/lab --ignore tests/trainables --ignore tests/docs --ignore tests/tools

# The tests that depend most on other packages, with the oldest version of each that is allowed.
lowest:
	$(PYTHON) -m venv .venv-lowest
	.venv-lowest/bin/python -m pip install --quiet --constraint constraints-lowest.txt setuptools
	.venv-lowest/bin/python -m pip install --quiet --constraint constraints-lowest.txt --no-build-isolation \
		-e ".[zoo,sweeps,bpe,figures,test]"
	.venv-lowest/bin/python -m pytest -m "not slow" tests/lab/store tests/lab/study tests/trainables tests/lab/judging tests/lab/statistics \
		tests/lab/analysis tests/train tests/data tests/laws tests/cells/test_every_cell.py \
		tests/lab/sweep/test_ray.py

# The whole suite with the newest version of each dependency that pip finds, without constraints:
# what a user has who types `pip install lmzoo-ablations[all]` today.
NEWEST ?= python3.13
newest:
	$(NEWEST) -m venv .venv-newest
	.venv-newest/bin/python -m pip install --quiet --upgrade pip setuptools
	.venv-newest/bin/python -m pip install --quiet --upgrade --no-build-isolation -e ".[all]"
	RAY_worker_niceness=0 .venv-newest/bin/python -m pytest -m "not slow" -n 3 --dist loadgroup

# What changed since main, in less than a minute; `check` and `test` are complete.
quick: $(ALL)
	$(BIN)/python tools/quick.py

check: $(ALL)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(MAKE) --jobs 2 check-types check-docs

check-types:
	$(BIN)/pyright

check-docs:
	$(BIN)/lint-imports
	$(BIN)/codespell lmzoo sweeps analysis tests tools docs README.md CONTRIBUTING.md CHANGELOG.md
	$(BIN)/python tools/results.py --check
	$(BIN)/python tools/architecture.py --check
	$(BIN)/mkdocs build --strict  # not --quiet, which hides warnings from --strict

# The documentation, readable without a server or a network: open site/index.html.
docs: $(ALL)
	$(BIN)/mkdocs build --strict

# The tables and figures of docs/results and the gallery, from the records in docs/results/records,
# and the audit of every row for the catalogue.
results: $(ALL)
	$(BIN)/python tools/results.py
	$(BIN)/python tools/gallery.py
	$(BIN)/lmzoo audit --all --json > docs/results/audits.json

# The reference study, in sittings: make reference DATA=DIR HOURS=8 (tools/reference.py).
reference: $(ALL)
	$(BIN)/python tools/reference.py --data-dir $(DATA) --hours $(or $(HOURS),8)

# Renew the pins of every distribution that an installation brings.
lock: $(ALL)
	$(BIN)/python tools/lock.py

# Tests on hosts made with network namespaces; need root (docs/guarantees/robustness.md).
drill: $(ALL)
	$(BIN)/python -m pytest drills/test_nodes.py drills/test_sweep.py drills/test_access.py drills/test_autoscaler.py drills/test_driver.py drills/test_bucket.py drills/test_frozen_worker.py drills/test_memory.py drills/test_aws.py -x -v -o addopts="" --timeout 7200

# What another account, another host and a stranger's files can reach (docs/guarantees/security.md).
drill-access: $(ALL)
	$(BIN)/python -m pytest drills/test_access.py -x -v -o addopts="" --timeout 3600
	$(BIN)/python -m drills.strangers

# A sweep as a job of a real SLURM, requeued three times; needs root and installs slurm-wlm and munge.
drill-slurm: $(ALL)
	$(BIN)/python -m pytest drills/test_slurm.py -x -v -o addopts="" --timeout 3600

# One sweep under thirty random faults: every record must equal that of an undisturbed sweep.
drill-faults: $(ALL)
	$(BIN)/python -m pytest drills/test_faults.py -x -s -o addopts="" --timeout 14400

# A short study with one core, 2 GB of memory, a slow disk, a clock that jumps, ...: the same table.
drill-machines: $(ALL)
	$(BIN)/python -m drills.machines

# Ratios to named rivals, one thread. JSON goes to runs/bench, tables to docs/benchmarks.md.
bench: $(ALL)
	$(BIN)/python benchmarks/fuse.py
	$(BIN)/python benchmarks/publish.py

# On a machine with a GPU, torch and Triton; no Ray, no .venv, and with build/gpu no network.
bench-gpu:
	PYTHONPATH=.:build/gpu $(PYTHON) benchmarks/gpu.py
	PYTHONPATH=.:build/gpu $(PYTHON) benchmarks/publish.py

# This package's other dependencies in build/gpu, for a machine without an index (benchmarks/README.md).
bench-gpu-bundle:
	$(PYTHON) -m pip install --quiet --upgrade --constraint constraints.txt --target build/gpu $$($(PYTHON) -c \
	  "import tomllib; print(*[d for d in tomllib.load(open('pyproject.toml', 'rb'))['project']['dependencies'] if 'torch' not in d])")

format: $(ALL)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

.venv/.made:
	$(PYTHON) -m venv .venv
	touch $@

# What a sweep and its tables need.
$(SWEEP): .venv/.made pyproject.toml constraints.txt
	$(INSTALL) setuptools
	$(INSTALL) --no-build-isolation -e ".[zoo,sweeps,figures]"
	touch $@

# The rest: tests, checks, documentation, clusters.
$(ALL): $(SWEEP)
	$(INSTALL) --no-build-isolation -e ".[all]"
	touch $@

clean:
	rm -rf .venv runs site .pytest_cache .ruff_cache .hypothesis
