# make book: the whole reproduction. make test: lint, types, unit tests and the smoke reproduction.
# Both make the environment first; nothing but Python 3.11 or newer is needed.
PYTHON ?= python3
CORES ?= all
BIN := .venv/bin
READY := .venv/.ready

.PHONY: book test lint smoke unit bench clean

book: $(READY)
	$(BIN)/snakemake --cores $(CORES)
	$(BIN)/python -m rankcollapse

test: lint smoke unit

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/snakefmt --check Snakefile workflow
	$(BIN)/mypy
	$(BIN)/snakemake --lint

smoke: $(READY)
	$(BIN)/snakemake --cores $(CORES) --configfile config/smoke.yaml

unit: $(READY)
	$(BIN)/pytest -n 2

bench: $(READY)
	$(BIN)/python benchmarks/workflow.py

clean:
	find results -mindepth 1 ! -name README.md -delete
	rm -rf .snakemake

$(READY): requirements.txt pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed, $(PYTHON) is " + sys.version.split()[0])'
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --requirement requirements.txt
	$(BIN)/pip install --quiet --no-deps --no-build-isolation --editable .
	@touch $@
