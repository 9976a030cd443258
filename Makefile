# Everything here sets itself up: a fresh machine needs Python 3.11+ and make.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
ARGS ?=
# Goes to pip as it is, e.g. an index with a CPU build of torch (README).
PIP_ARGS ?=

.PHONY: help weights train train-long test test-all lint setup clean

help:  ## This list
	@grep -E '^[a-z%-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*##/\t/' | expand -t 16

setup: $(STAMP)  ## Virtual environment with everything in it

# pip is quiet but its errors are not; the stamp is written only after a complete installation.
$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "Python 3.11 or newer is needed; set PYTHON=python3.x" >&2; exit 2; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "Installing into $(VENV) (minutes; torch's default wheel for Linux carries CUDA, gigabytes: see README) ..."
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt $(PIP_ARGS) -e '.[dev]'
	@touch $@

weights: $(STAMP)  ## Pretrain the tiny world anew (a few hours on two cores; resumes where it was)
	$(BIN)/python -m tinyworld.pretrain $(ARGS)
	$(BIN)/python -m tinyworld.manifest

train: $(STAMP)  ## Train the tiny world on five rewards (about ten minutes on two cores)
	MARBLE_MAKE_TARGET=train $(BIN)/python -m deploy.cli train deploy/recipes/tiny.yaml $(ARGS)

train-long: $(STAMP)  ## The same for up to an hour
	MARBLE_MAKE_TARGET=train-long $(BIN)/python -m deploy.cli train deploy/recipes/tiny_long.yaml $(ARGS)

reward-env-%: $(STAMP)  ## A Python of its own for a scorer: deploy/environments/NAME.txt into .reward-envs/NAME
	$(BIN)/python -m deploy.reward_env $*

lint: $(STAMP)  ## Style and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

test: lint  ## Style, types and the quick tests
	$(BIN)/python -m pytest -m "not slow" $(ARGS)

test-all: lint  ## Everything, the long tests too
	$(BIN)/python -m pytest $(ARGS)

clean:  ## Caches only: runs and the environment stay
	rm -rf .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find . -name __pycache__ -type d -not -path './$(VENV)/*' -prune -exec rm -rf {} +
