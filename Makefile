# The one task runner: people and CI call the same targets.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet

.PHONY: help demo docs test bench conformance endpoints lint format lock clean

help:
	@echo "make demo          see callpact at work (ONCE=1: one round, then exit)"
	@echo "make test          lint, types, all tests; what CI runs"
	@echo "make docs          the documentation as a site, in build/site"
	@echo "make bench         the figures of docs/explanation/performance.md"
	@echo "make conformance   what two judges of MCP by others say of our server and client"
	@echo "make endpoints     what two judges of HTTP endpoints by others say"
	@echo "make format        format the code"
	@echo "make lock          pin the requirements anew"

demo: $(VENV)/run.stamp
	@$(BIN)/python examples/shop/demo.py $(if $(ONCE),--once,)

test: $(VENV)/test.stamp
	@$(BIN)/python scripts/check.py $(GROUPS)

docs: $(VENV)-docs/docs.stamp
	@NO_MKDOCS_2_WARNING=1 $(VENV)-docs/bin/mkdocs build
	@echo "built build/site/index.html"

bench: $(VENV)-bench/bench.stamp
	@$(VENV)-bench/bin/python benchmarks/run.py $(BENCH)

conformance: $(VENV)/test.stamp
	@$(BIN)/python scripts/conformance.py

endpoints: $(VENV)/test.stamp
	@$(BIN)/python scripts/endpoints.py

lint: $(VENV)/test.stamp
	@$(BIN)/python scripts/check.py lint types imports

format: $(VENV)/test.stamp
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix .

lock: $(VENV)/run.stamp
	@$(PIP) install uv
	@PATH="$(abspath $(BIN)):$$PATH" requirements/lock.sh

clean:
	rm -rf $(VENV) .venv-* .pytest_cache .ruff_cache .hypothesis .import_linter_cache build dist

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "callpact needs Python 3.11 or newer; $(PYTHON) is older. Try: make PYTHON=python3.12 $(MAKECMDGOALS)"; exit 2; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { \
	  echo "$(PYTHON) has no venv. Install it (Debian, Ubuntu: apt install python3-venv), then run make again."; exit 2; }
	@echo "making the environment in $(VENV) …"
	@$(PYTHON) -m venv $(VENV)

$(VENV)/run.stamp: requirements/run.txt pyproject.toml | $(VENV)/bin/python
	@echo "installing what callpact needs …"
	@$(PIP) install --require-hashes -r requirements/run.txt
	@$(PIP) install --no-deps --no-build-isolation --editable .
	@touch $@

$(VENV)/test.stamp: requirements/test.txt $(VENV)/run.stamp
	@echo "installing what the tests need …"
	@$(PIP) install --require-hashes -r requirements/test.txt
	@touch $@

# The peers have an environment of their own: they are never dependencies of callpact.
$(VENV)-bench/bench.stamp: requirements/bench.txt pyproject.toml | $(VENV)/bin/python
	@echo "installing the peers in $(VENV)-bench …"
	@$(VENV)/bin/python -m venv $(VENV)-bench
	@$(VENV)-bench/bin/python -m pip --disable-pip-version-check --quiet install --require-hashes -r requirements/bench.txt
	@$(VENV)-bench/bin/python -m pip --disable-pip-version-check --quiet install --no-deps --no-build-isolation --editable .
	@touch $@

$(VENV)-docs/docs.stamp: requirements/docs.txt | $(VENV)/bin/python
	@echo "installing the builder of the site in $(VENV)-docs …"
	@$(VENV)/bin/python -m venv $(VENV)-docs
	@$(VENV)-docs/bin/python -m pip --disable-pip-version-check --quiet install --require-hashes -r requirements/docs.txt
	@touch $@
