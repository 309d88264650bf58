# Every workflow of this repository is one of these goals; `make` lists them.

SHELL = /bin/sh
PREFIX ?= /usr/local
DESTDIR ?=
# Seconds that `make fuzz` spends on each target.
FUZZ_SECONDS ?= 30
# Power cuts that `make powercut` makes, and the first seed of their runs.
POWERCUT_POINTS ?= 5000
POWERCUT_SEED ?= 1000
# Clusters that `make soak` simulates, and the first seed.
SOAK_SEEDS ?= 100000
SOAK_SEED ?= 1000000
# How often `make faults` has every kind of fault in a pair with another one, and the seed.
FAULT_ROUNDS ?= 10
FAULT_SEED ?= 1000
# How often `make properties` draws cases, and the first seed.
PROPERTY_SEEDS ?= 10
PROPERTY_SEED ?= 1000
# Files that `make memory` makes.
FILES ?= 10000000
# What `make bench` measures storage on; GlusterFS where it is installed.
BENCH_DEVICES ?= parallel,serial,channels,flash,disk$(if $(shell command -v glusterfsd),$(comma)glusterfs$(comma)glusterfs-delayed)
comma := ,
TARGET_DIR := $(or $(CARGO_TARGET_DIR),target)
CARGO := scripts/cargo
# What users get, and beside it what only acceptance tests and benchmarks run. Always named together with the former: alone they
# would ask for fewer features of what both depend on, and all of that would be built a second time.
PROGRAMS := -p isonomia -p isonomia-preload -p isonomia-hints
MEASURING := $(PROGRAMS) -p isonomia-detect -p isonomia-bench

.PHONY: help
help: ## List these goals
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/\1\t\2/p' $(firstword $(MAKEFILE_LIST)) | awk -F '\t' '{ printf "  make %-12s %s\n", $$1, $$2 }'

.PHONY: setup
setup: ## Install what building needs, or name exactly what is missing
	@scripts/setup build

.PHONY: build
build: setup ## Build the program and the preload libraries, optimised
	$(CARGO) build --release --locked $(PROGRAMS)
	scripts/wrap release $(TARGET_DIR)/release

.PHONY: demo
demo: build ## See what the sharing policies do, in under a minute
	$(TARGET_DIR)/release/isonomia demo

.PHONY: test
test: setup ## Run all tests of our own, with format and lints
	@scripts/setup test
	@scripts/test

.PHONY: acceptance
acceptance: build ## Run real programs against a real server, and break things
	@scripts/setup acceptance
	$(CARGO) build --release --locked $(MEASURING)
	@tests/acceptance/run --bin-dir $(TARGET_DIR)/release

.PHONY: memory
memory: build ## Show a server's memory with FILES files (10,000,000 take a while, and 4 GB of /dev/shm)
	ISONOMIA_MEMORY_FILES=$(FILES) tests/acceptance/run --bin-dir $(TARGET_DIR)/release MemoryOfMany

.PHONY: bench
bench: build ## Measure speed, with tmpfs beside it, fairness, clusters, and storage (as root); results in out/bench
	$(CARGO) build --release --locked $(MEASURING)
	$(TARGET_DIR)/release/isonomia-bench
	$(TARGET_DIR)/release/isonomia-bench cluster
	if [ "$$(id -u)" = 0 ] && command -v fio >/dev/null; then \
		$(TARGET_DIR)/release/isonomia-bench storage --device $(BENCH_DEVICES); \
	else echo "bench: contests on storage are left out: they take root and fio"; fi
	scripts/bench

.PHONY: fuzz
fuzz: setup ## Fuzz every decoder, and a server, for FUZZ_SECONDS each (needs a C++ compiler)
	@fuzz/run $(FUZZ_SECONDS)

.PHONY: powercut
powercut: setup ## Cut the power of a store POWERCUT_POINTS times (needs root)
	ISONOMIA_POWERCUT_POINTS=$(POWERCUT_POINTS) ISONOMIA_POWERCUT_SEED=$(POWERCUT_SEED) \
		$(CARGO) test --locked -p isonomia-store --test powercut soak -- --ignored --nocapture

.PHONY: soak
soak: setup ## Simulate clusters with faults from SOAK_SEEDS seeds
	ISONOMIA_SEEDS=$(SOAK_SEEDS) ISONOMIA_SEED=$(SOAK_SEED) \
		$(CARGO) test --locked -p isonomia-cluster-sim --test seeds promises -- --nocapture

.PHONY: faults
faults: build ## Break a cluster of real servers by two kinds of faults at a time, FAULT_ROUNDS times all of them (needs root)
	$(CARGO) build --release --locked $(MEASURING)
	ISONOMIA_FAULT_ROUNDS=$(FAULT_ROUNDS) ISONOMIA_FAULT_SEED=$(FAULT_SEED) \
		tests/acceptance/run --bin-dir $(TARGET_DIR)/release FaultsInPairs

.PHONY: properties
properties: setup ## Test every property on fresh random cases, from PROPERTY_SEEDS seeds
	for seed in $$(seq $(PROPERTY_SEED) $$(($(PROPERTY_SEED) + $(PROPERTY_SEEDS) - 1))); do \
		echo "again: PROPTEST_RNG_SEED=$$seed make test"; \
		PROPTEST_RNG_SEED=$$seed $(CARGO) test --quiet --locked --workspace || exit 1; \
	done

.PHONY: wheel
wheel: setup ## Build the Python package for machines without Rust, into out/wheels; GLIBC=2.17 for older ones (needs PyPI)
	scripts/wheel out/wheels $(GLIBC)

.PHONY: install
install: build ## Install below PREFIX (default /usr/local)
	install -D -m 755 $(TARGET_DIR)/release/isonomia $(DESTDIR)$(PREFIX)/bin/isonomia
	install -D -m 755 $(TARGET_DIR)/release/libisonomia_preload.so $(DESTDIR)$(PREFIX)/lib/libisonomia_preload.so
	install -D -m 755 $(TARGET_DIR)/release/libisonomia_hints.so $(DESTDIR)$(PREFIX)/lib/libisonomia_hints.so
	install -D -m 644 $(TARGET_DIR)/release/libisonomia_wrap.a $(DESTDIR)$(PREFIX)/lib/libisonomia_wrap.a
	install -D -m 644 $(TARGET_DIR)/release/libisonomia_wrap.flags $(DESTDIR)$(PREFIX)/lib/libisonomia_wrap.flags
	install -d $(DESTDIR)$(PREFIX)/sbin
	ln -sf ../bin/isonomia $(DESTDIR)$(PREFIX)/sbin/mount.fuse.isonomia

.PHONY: clean
clean: ## Remove everything that was built
	rm -rf target fuzz/target out
