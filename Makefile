# Everything runs in .venv, which is made on first use and remade when a pyproject.toml changes.
# Needed beforehand: Python >= 3.11 with pip, and make.

PYTHON ?= python3
VENV ?= .venv
VENV_MINIMAL ?= .venv-minimal
VENV_PYMC ?= .venv-pymc
PYMC ?= pymc   # e.g. PYMC='pymc<6'
# One more than there are cores, at most 4: tests wait for disks and for the processes they start.
WORKERS ?= $(shell echo $$(( $$(getconf _NPROCESSORS_ONLN) < 3 ? 3 : 4 )))
PYTEST_ARGS ?=

BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
STAMP_MINIMAL := $(VENV_MINIMAL)/.installed
STAMP_PYMC := $(VENV_PYMC)/.installed
PIP_FLAGS := --quiet --disable-pip-version-check --no-compile --prefer-binary
# Packages are installed with pip. UV=uv installs them with that program, in a fifth of the time, and with pip if it fails:
# it knows neither pip's settings nor its indexes.
UV ?=
install = $(if $(UV),$(UV) pip install --quiet --system-certs --python $(1)/bin/python $(2) || )$(1)/bin/pip install $(PIP_FLAGS) $(2)
PAGES = README.md core/README.md latent/README.md papers/README.md benchmarks/README.md   # those in docs/ are run when the documentation is built
DOCS_FLAGS ?= -E   # everything anew; DOCS_FLAGS= builds only pages that have changed
DOCS_JOBS ?= 4   # pages at a time; they wait for imports and compilers, so more than there are cores
HTML := build/docs/html

# Where Python may not keep what it has compiled, each process compiles all of JAX, pandas and ArviZ: five seconds each.
unexport PYTHONDONTWRITEBYTECODE

# The checks run on the CPU unless told otherwise: several workers cannot share one accelerator.
quick test pages docs minimal pymc: export JAX_PLATFORMS ?= cpu

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help env demo quick test docs pages dist versions lint format types contracts minimal pymc bench benchtopics benchmixtures benchtuning benchmodels benchcluster clean

help:  ## say what can be made
	@awk -F ':.*## ' '/^[a-z]+:.*## /{printf "  make %-13s %s\n", $$1, $$2}' $(firstword $(MAKEFILE_LIST))

env:  ## an environment with everything: make env VENV=path
	@$(MAKE) --no-print-directory $(VENV)

demo: $(STAMP)  ## the plain call on 100,000 rows beside the exact answer, a report, and three models: a minute
	$(BIN)/scirocco demo

quick: $(STAMP)  ## while you work: lint, contracts, unit tests, every sampler and estimator once, store, a command
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports --no-logo
	$(BIN)/python -m pytest -q -n 2 --dist worksteal -m unit core/tests latent/tests tests $(PYTEST_ARGS)
	@echo "made: ruff, import contracts, tests of the part unit. make test runs all parts."

test: $(STAMP)  ## tests, doctests and the code in the README (PYTEST_ARGS="-m law" for one part)
	@mkdir -p build
	@$(BIN)/python tools/run_pages.py $(PAGES) >build/pages.log 2>&1 & pages=$$!; \
	$(BIN)/python -m pytest -q -n $(WORKERS) --dist worksteal --doctest-modules core latent tests papers $(PYTEST_ARGS); \
	status=$$?; wait $$pages || status=1; cat build/pages.log; exit $$status

docs: $(STAMP)  ## the documentation: every page is run, and a warning is an error
	$(BIN)/sphinx-build -q -W --keep-going -j $(DOCS_JOBS) $(DOCS_FLAGS) -d build/docs/doctrees docs $(HTML)
	$(BIN)/python tools/check_offline.py $(HTML)
	@echo "open $(CURDIR)/$(HTML)/index.html"

pages: $(STAMP)  ## only the code in the READMEs
	$(BIN)/python tools/run_pages.py $(PAGES)

lint: $(STAMP)  ## ruff: rules and format; words to avoid in pages and messages
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/python tools/check_words.py

format: $(STAMP)  ## let ruff mend what it can
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

types: $(STAMP)  ## mypy
	$(BIN)/mypy

contracts: $(STAMP)  ## import-linter: which room may import which
	$(BIN)/lint-imports --no-logo

dist: $(STAMP)  ## wheels and sdists in dist/, tried in new environments: minimal, each extra, full, READMEs, uvx, pipx
	$(BIN)/python tools/environments.py dist

versions: $(STAMP)  ## Python 3.11 to 3.14, where they are found, with the oldest and the newest jax
	$(BIN)/python tools/environments.py versions

minimal: $(STAMP_MINIMAL)  ## the package with nothing but jax and numpy beside it
	$(call install,$(VENV_MINIMAL),--no-deps --force-reinstall ./core)
	$(VENV_MINIMAL)/bin/python -I core/tests/minimal/check_minimal.py

pymc: $(STAMP_PYMC)  ## sc.from_pymc against PyMC and bambi, in .venv-pymc (a gigabyte), and the code of docs/from_pymc.md
	PYTHONPATH=core/src $(VENV_PYMC)/bin/python -m pytest -q core/tests/bridges/test_pymc.py $(PYTEST_ARGS)

bench: $(STAMP)  ## speed, side by side with the rivals
	$(BIN)/python benchmarks/run.py

benchtopics: $(STAMP)  ## topic models, side by side with gensim, scikit-learn and tomotopy
	$(BIN)/python benchmarks/lda.py

benchmixtures: $(STAMP)  ## Dirichlet-process mixtures, side by side with plain NumPy
	$(BIN)/python benchmarks/dp.py

benchtuning: $(STAMP)  ## tuning on covertype, beside a grid (needs the data set)
	$(BIN)/python benchmarks/tuning.py

benchmodels: $(STAMP)  ## covertype, MovieLens and MNIST beside plain JAX and NUTS (needs the data sets)
	$(BIN)/python benchmarks/covertype.py
	$(BIN)/python benchmarks/bpmf.py
	$(BIN)/python benchmarks/bnn.py

benchcluster: $(STAMP)  ## several workers, several devices: throughput, messages, break-even batches
	$(BIN)/python benchmarks/cluster.py --repeats 2
	$(BIN)/python benchmarks/shards.py
	$(BIN)/python benchmarks/devices.py --devices 1 2 --processes

clean:  ## remove the environments, caches and outputs
	rm -rf $(VENV) $(VENV_MINIMAL) $(VENV_PYMC) build dist .pytest_cache .mypy_cache .ruff_cache .import_linter_cache
	find core latent papers tests tools -name __pycache__ -type d -prune -exec rm -rf {} +

$(VENV): $(STAMP)

$(VENV_MINIMAL): $(STAMP_MINIMAL)

$(STAMP): pyproject.toml core/pyproject.toml latent/pyproject.toml papers/pyproject.toml
	@$(PYTHON) -c 'import sys; sys.version_info >= (3, 11) or sys.exit("scirocco needs Python 3.11 or newer; this is " + sys.version.split()[0] + ". Try: make PYTHON=python3.12 ...")'
	$(PYTHON) -m venv $(VENV)
	$(call install,$(VENV),-e './core' -e './latent' -e ./papers -e '.[dev]')
	@touch $@

$(VENV_PYMC): $(STAMP_PYMC)

$(STAMP_PYMC): core/pyproject.toml
	$(PYTHON) -m venv --clear $(VENV_PYMC)
	$(VENV_PYMC)/bin/pip install $(PIP_FLAGS) -e './core[pymc,arviz,plot,numpyro,formula]' '$(PYMC)' bambi numpyro hypothesis pytest pytest-xdist
	@touch $@

$(STAMP_MINIMAL): core/pyproject.toml
	$(PYTHON) -m venv --clear $(VENV_MINIMAL)
	$(call install,$(VENV_MINIMAL),jax numpy)
	@touch $@
