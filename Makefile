# Every target does its own set-up in .venv, and does it again only when something changed.
# Needs Python >= 3.11 and Rust >= 1.85. `make PYTHON=python3.13 test` picks the interpreter for a new .venv.

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DELETE_ON_ERROR:
.DEFAULT_GOAL := help

VENV := .venv
BIN := $(VENV)/bin
HOSTS := .venv-hosts
PYTHON ?= $(shell for p in python3 python3.14 python3.13 python3.12 python3.11; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)
PIP := $(BIN)/python -m pip
JOBS := $(shell nproc 2>/dev/null || echo 1)
RUST := Cargo.toml Cargo.lock $(shell find rust/core rust/py -type f)
# For the pip that maturin calls as well.
export PIP_QUIET := 1
export PIP_DISABLE_PIP_VERSION_CHECK := 1
# The backend that pyproject.toml names calls maturin's, which maturin takes for none.
export MATURIN_NO_MISSING_BUILD_BACKEND_WARNING := 1
# One interpreter for every build, so that cargo does not build PyO3 again for each caller.
export PYO3_PYTHON := $(abspath $(BIN))/python

.PHONY: help demo test test-rust test-python hosts golden bench rivals accuracy lint lint-rust lint-python docs develop clean

help: ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

demo: $(VENV)/.built ## simulate a chat service on 1, 2, 4 and 8 replicas; table, report.html, report.png
	$(BIN)/prefixroute simulate chat --replicas 1,2,4,8 --policies round-robin,session,cache-aware --jobs $(JOBS) \
		--speeds article --report report.html --png report.png

test: test-rust test-python ## all tests, Rust and Python

test-rust: $(VENV)/.created
	@if cargo nextest --version >/dev/null 2>&1; then \
		cargo nextest run -p prefixroute-core --all-features && cargo test -q -p prefixroute-core --all-features --doc; \
	else cargo test -p prefixroute-core --all-features; fi

test-python: $(VENV)/.test
	$(BIN)/python -m pytest -n $(JOBS)

hosts: $(HOSTS)/.installed ## adapters beside the hosts really running (minutes): Ray Serve, LiteLLM, verl, SkyPilot
	HOME=$(abspath $(HOSTS)) PYTHONPATH=python timeout 420 $(HOSTS)/bin/python -m pytest tests/hosts -W ignore --no-header -q

golden: $(VENV)/.test ## the published numbers again, over 20 seeds (minutes)
	$(BIN)/python -m pytest -m golden --golden-seeds 20

bench: $(VENV)/.bench ## time the hot paths on this machine, beside rivals
	$(BIN)/python -m pytest benches --benchmark-enable --benchmark-only --benchmark-quiet
	$(MAKE) rivals

rivals: $(VENV)/.bench ## the core beside SMG's and Dynamo's crates and Dynamo's wheel, in one run; CASES='write lookup --quick' for a part
	PYTHONPATH=$$($(BIN)/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))') \
	LD_LIBRARY_PATH=$$($(BIN)/python -c 'import sysconfig; print(sysconfig.get_config_var("LIBDIR"))') \
	cargo run --release --features dynamo,wheel --manifest-path benches/rivals/Cargo.toml -- $(CASES)

accuracy: $(VENV)/.accuracy ## compare with other implementations again, or STUDY=name alone; writes docs/accuracy.md
	cd benches && ../$(BIN)/python -m accuracy $(STUDY) --write

lint: lint-rust lint-python ## formatters, linters, types, stubs, layers

lint-rust: $(VENV)/.created
	cargo fmt --all --check
	cargo clippy --quiet --workspace --all-targets --all-features -- -D warnings
	cargo clippy --quiet --workspace -- -D warnings

lint-python: $(VENV)/.lint
	$(BIN)/ruff format --check
	$(BIN)/ruff check
	$(BIN)/mypy
	MYPYPATH=python $(BIN)/mypy examples/proxy.py
	MYPYPATH=python $(BIN)/mypy -p examples.providers
	MYPYPATH=python $(BIN)/python -m mypy.stubtest prefixroute._core
	$(BIN)/lint-imports --no-logo

docs: $(VENV)/.docs ## build this version's documentation, warnings are errors, and the list of all versions built
	$(BIN)/python -m sphinx -W --keep-going -q -b html docs \
		docs/_build/html/$$($(BIN)/python -c 'import prefixroute; print(prefixroute.__version__)')
	$(BIN)/python docs/versions.py docs/_build/html
	@echo "docs/_build/html/index.html"

develop: $(VENV)/.test $(VENV)/.lint $(VENV)/.docs ## everything a contributor needs, in .venv

clean: ## remove what the targets above made
	rm -rf $(VENV) $(HOSTS) target docs/_build report.html report.png .pytest_cache .mypy_cache .ruff_cache .hypothesis .benchmarks
	find python -name '*.so' -delete

$(VENV)/.created:
	@[ -n "$(PYTHON)" ] || { echo "error: prefixroute needs Python >= 3.11 (try: make PYTHON=/path/to/python3.11)" >&2; exit 1; }
	@rustc --version 2>/dev/null | awk '{ split($$2, v, "."); exit !(v[1] > 1 || v[2] >= 85) } END { if (!NR) exit 1 }' \
		|| { echo "error: prefixroute needs Rust >= 1.85, found: $$(rustc --version 2>/dev/null || echo none) (https://rustup.rs)" >&2; exit 1; }
	@$(PYTHON) -m venv $(VENV) || { echo "error: $(PYTHON) cannot make a virtual environment (Debian: apt install python3-venv)" >&2; exit 1; }
	$(PIP) install --upgrade 'pip>=25.1'
	@touch $@

$(VENV)/.built: $(VENV)/.created $(RUST) pyproject.toml
	$(PIP) install --group build
	VIRTUAL_ENV=$(abspath $(VENV)) $(BIN)/maturin develop --quiet --release --extras cli,report
	@touch $@

$(VENV)/.test: $(VENV)/.built pyproject.toml
	$(PIP) install --group test 'prefixroute[all]'
	@touch $@

$(VENV)/.bench: $(VENV)/.test pyproject.toml
	$(PIP) install --group bench
	@touch $@

$(HOSTS)/.installed: $(VENV)/.built pyproject.toml
	$(BIN)/python -m venv $(HOSTS)
	$(HOSTS)/bin/python -m pip install --upgrade 'pip>=25.1'
	$(HOSTS)/bin/python -m pip install --group hosts
	$(HOSTS)/bin/python -m pip install --no-deps --group hosts-bare
	@touch $@

$(VENV)/.accuracy: $(VENV)/.built pyproject.toml
	$(PIP) install --group accuracy
	@touch $@

$(VENV)/.lint: $(VENV)/.built pyproject.toml
	$(PIP) install --group lint
	@touch $@

$(VENV)/.docs: $(VENV)/.built pyproject.toml
	$(PIP) install --group docs
	@touch $@
