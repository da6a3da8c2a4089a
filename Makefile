# Every target sets up what it needs: a venv in .venv, its requirements, and the package built and installed into it.
PYTHON ?= python3
VENV   ?= .venv
BUILD  ?= build
PY     := $(VENV)/bin/python
PIP    := $(PY) -m pip --disable-pip-version-check install -q

# Folders count too: their times change when a file is removed.
SOURCES := pyproject.toml CMakeLists.txt README.md \
           $(shell find src csrc -name __pycache__ -prune -o -not -name '.*' -print 2>/dev/null)

# $(call requires,group ...): requirement lists of pyproject.toml, one word an item.
requires = $$($(PYTHON) -c 'import sys, tomllib; p = tomllib.load(open("pyproject.toml", "rb")); \
  g = {"system": p["build-system"]["requires"], "run": p["project"]["dependencies"], \
       **p["project"]["optional-dependencies"]}; print(*(r for n in sys.argv[1:] for r in g[n]))' $(1))

.PHONY: run test bench build lint clean

run: $(VENV)/package
	$(PY) examples/mlp.py $(ARGS)

test: $(VENV)/package $(VENV)/test-tools
	$(PY) -m pytest tests $(ARGS)

bench: $(VENV)/package $(VENV)/test-tools
	$(PY) benchmarks/run.py $(ARGS)

build: $(VENV)/package

lint: $(VENV)/lint-tools
	$(PY) -m ruff check src tests benchmarks examples
	$(PY) -m mypy

clean:
	rm -rf $(BUILD) $(VENV)

# The package is installed, not linked: tests import what a user would get. The build folder stays, so that only
# changed files are compiled again; the lock keeps two builds apart.
$(VENV)/package: $(VENV)/build-tools $(SOURCES)
	@mkdir -p $(BUILD)
	@echo "building mindtorch_v2"
	@flock $(BUILD)/.lock $(PIP) --no-build-isolation --no-deps -C build-dir=$(BUILD) .
	@touch $@

$(VENV)/build-tools: pyproject.toml
	@test -x $(PY) || $(PYTHON) -m venv $(VENV)
	@echo "installing build tools"
	@$(PIP) $(call requires,system build run)
	@touch $@

$(VENV)/test-tools: $(VENV)/build-tools
	@echo "installing test tools"
	@$(PIP) $(call requires,test)
	@touch $@

$(VENV)/lint-tools: $(VENV)/build-tools
	@echo "installing lint tools"
	@$(PIP) $(call requires,lint)
	@touch $@
