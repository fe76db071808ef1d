# `make help` lists the targets. They need Python >= 3.11 with pip and, for some tests, what `make system-deps` installs.

PYTHON ?= python3
VENV ?= .venv
# Processes of one test run.
JOBS ?= 2
# What `make conformance` runs; narrow it for a part: make conformance CONFORMANCE=packages/torchstone/tests/lowering
CONFORMANCE ?= packages/torchstone/tests packages/optest/tests tests
# Registering the eager device changes PyTorch for a whole process, so its tests run in their own.
DEVICE_TESTS := packages/torchstone/tests/device
# How much `make evidence` records: make evidence EVIDENCE="--stage 3 --most 4"; tools/evidence.py --help has all.
EVIDENCE ?=

BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
PYTEST := $(BIN)/python -m pytest
# Tests start hundreds of processes, which import much faster from bytecode: write it wherever that is turned off.
export PYTHONDONTWRITEBYTECODE :=
# What tests run beside Python, as tool:package. Debian keeps a server's tools off the PATH.
SYSTEM_TOOLS := gcc:gcc g++:g++ initdb:postgresql chromium:chromium chromedriver:chromium-driver
SERVER_TOOLS := /usr/lib/postgresql/*/bin

.DEFAULT_GOAL := help
.PHONY: help demo test check docs site bench conformance evidence compat test-accelerator test-iree system-deps clean new-operator new-builtin release

help: ## this list
	@sed -n 's/^\([a-z-]*\):.*## /\1|/p' $(MAKEFILE_LIST) | awk -F'|' '{ printf "make %-18s %s\n", $$1, $$2 }'

demo: $(INSTALLED) ## train a CNN on digits through the compiler, export it, reload it, prove it right
	$(BIN)/torchstone demo

test: check ## all checks, then all tests but the conformance run
	$(PYTEST) -n $(JOBS) --dist worksteal $(DEVICE_TESTS)
	$(PYTEST) -n $(JOBS) --dist worksteal

check: $(INSTALLED) ## lint, formatting, types, import layers
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo

docs: $(INSTALLED) ## write the documentation's tables from the code
	$(BIN)/python tools/generate_docs.py

site: $(INSTALLED) ## build the documentation site into build/site; a broken link fails
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build
	@echo "open build/site/index.html"

new-operator: $(INSTALLED) ## scaffold a lowering: make new-operator NAME=aten.sinc.default FAMILY=trigonometry
	@$(BIN)/python tools/new_operator.py $(NAME) $(if $(FAMILY),--family $(FAMILY))

new-builtin: $(INSTALLED) ## scaffold an operator of optest: make new-builtin NAME=softclip CATEGORY=activation
	@$(BIN)/python tools/new_builtin.py $(NAME) $(CATEGORY) $(if $(INPUTS),--inputs $(INPUTS)) $(if $(TORCH),--torch $(TORCH))

release: $(INSTALLED) ## check versions, changelog and wheels, and write the sizes of the wheels into the documentation
	$(BIN)/python tools/release.py

bench: $(INSTALLED) ## every speed figure, beside its peers in one run
	$(BIN)/python -m benchmarks

conformance: $(INSTALLED) ## every overload and dtype with all its samples; resumes where it stopped
	$(PYTEST) -n $(JOBS) --dist worksteal -m conformance --journal .conformance $(DEVICE_TESTS)
	$(PYTEST) -n $(JOBS) --dist worksteal -m conformance --journal .conformance $(CONFORMANCE)

evidence: $(INSTALLED) ## record PyTorch's operator samples twice and write COVERAGE.md; resumes where it stopped
	$(BIN)/python tools/evidence.py $(EVIDENCE)

compat: $(INSTALLED) ## the checks with every supported version of PyTorch; several GB, resumes where it stopped
	$(BIN)/python tools/compat.py

test-iree: $(INSTALLED) ## install IREE (390 MB) and run the tests of its engine
	$(BIN)/python -m pip install -c constraints.txt iree-base-compiler iree-base-runtime
	$(PYTEST) packages/torchstone/tests/runtime/test_iree.py packages/torchstone/tests/parity/test_conformance.py

test-accelerator: $(INSTALLED) ## a sample of the tests on a PJRT device other than the CPU
	$(PYTEST) -m accelerator

system-deps: ## the compilers, the server and the browser that some tests need, by apt-get where they are missing
	@missing=; for pair in $(SYSTEM_TOOLS); do tool=$${pair%%:*}; \
	command -v $$tool >/dev/null || ls $(SERVER_TOOLS)/$$tool >/dev/null 2>&1 || missing="$$missing $${pair##*:}"; done; \
	if [ -z "$$missing" ]; then echo "system-deps: nothing to install"; exit 0; fi; \
	command -v apt-get >/dev/null || { echo "system-deps: missing$$missing, and no apt-get here: install them by hand" >&2; exit 1; }; \
	sudo=; [ "$$(id -u)" = 0 ] || sudo=sudo; \
	echo "system-deps: $$sudo apt-get install$$missing"; \
	$$sudo apt-get update -qq && $$sudo env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $$missing

clean: ## remove the virtual environment, builds and caches
	rm -rf $(VENV) .compat .conformance .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache build packages/*/dist
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# The environment is rebuilt when a requirement changes; an interrupted installation leaves no stamp, so it runs again.
# Some distributions split ensurepip off: then pip is put in from outside.
$(INSTALLED): constraints.txt requirements-dev.txt packages/optest/pyproject.toml packages/optest-full/pyproject.toml packages/torchstone/pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Torchstone needs Python >= 3.11, and $(PYTHON) is " + sys.version.split()[0] + ": make PYTHON=python3.12 ...")'
	$(PYTHON) -m venv $(VENV) || { $(PYTHON) -m venv --clear --without-pip $(VENV) && $(PYTHON) -m pip --python $(BIN)/python install pip; }
	$(BIN)/python -m pip install -c constraints.txt -r requirements-dev.txt
	@touch $@
