# The commands of the repository. `make help` lists them.
#
# Everything that is downloaded or built goes into target/; the only packages
# installed on the machine are the ones scripts/setup-test.sh names, and only
# for root.

CARGO ?= cargo
TARGET := $(or $(CARGO_TARGET_DIR),target)
ARGS ?=

.PHONY: help run test test-product test-mini test-lab check interop bench bench-acl bench-operate bench-sink doc clean setup \
	attack innocent soak cluster cluster-test supply-chain reproducible lab-quic lab-quick lab-book firmware firmware-run \
	mcu-interop mcu-report deb deb-test arm64 arm64-test container \
	container-test helm-test page-test publish-check sink-test small

help: ## list the commands
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' Makefile

run: ## build the release binary and start a broker (ARGS='--config x.toml')
	$(CARGO) build --release --package dunlin
	exec "$(TARGET)/release/dunlin" broker $(ARGS)

test: ## everything that must hold in all three houses, other clients included
	$(call built,--workspace)
	$(STEPS) --at-once 2 "$$PRODUCT_STEPS" "$$MINI_STEPS"
	$(STEPS) --at-once 1 "$$LAB_STEPS"

test-product: ## what must hold in crates/, alone
	$(call built,$(call packages,crates) --package xtask)
	$(STEPS) --at-once 2 "$$PRODUCT_STEPS"

test-mini: ## what must hold in mini/, alone: of crates/ it builds only the broker
	$(call built,$(call packages,mini))
	$(CARGO) build --package dunlin --package xtask --bins
	$(STEPS) --at-once 2 "$$MINI_STEPS"

test-lab: ## what must hold in lab/, alone
	$(call built,$(call packages,lab))
	$(CARGO) build --package dunlin --bins
	$(STEPS) --at-once 1 "$$LAB_STEPS"

# The crates of a house, as Cargo takes them.
packages = $(addprefix --package ,$(notdir $(patsubst %/,%,$(dir $(wildcard $(1)/dunlin*/Cargo.toml)))))

# Runs lists of commands, and says how long each takes.
STEPS := DUNLIN="$(TARGET)/debug/dunlin" python3 -B scripts/steps.py

# Format, lints and tests of some crates. Packages of Debian come first, as a compiler may be
# among what they change; what else the tests need is installed meanwhile.
define built
	scripts/setup-test.sh --debian
	PACKAGES="$(1)" $(STEPS) --beside scripts/setup-test.sh "$$BUILD_STEPS"
	PACKAGES="$(1)" $(STEPS) "$$TEST_STEPS"
endef

export BUILD_STEPS TEST_STEPS PRODUCT_STEPS MINI_STEPS LAB_STEPS

# The last one links the programs that no test has asked for; it compiles nothing that the
# tests have.
define BUILD_STEPS
$(CARGO) fmt --all --check
$(CARGO) clippy $$PACKAGES --all-targets -- -D warnings
$(CARGO) test $$PACKAGES --no-run
$(CARGO) build $$PACKAGES --bins --examples --tests
endef

# Most tests wait more than they compute.
define TEST_STEPS
RUST_TEST_THREADS=$$((2 * $$(nproc))) $(CARGO) test $$PACKAGES
endef

# What takes long is first, so that it does not run alone in the end. Those that ask Cargo
# for a program are last: one Cargo waits for another.
define PRODUCT_STEPS
scripts/interop/run.sh
$(CARGO) check --quiet --locked --manifest-path fuzz/Cargo.toml --target-dir "$(TARGET)" &&
$(call front,mqtt) &&
$(call front,amqp)
scripts/soak/run.sh --short
scripts/sink/run.sh --short
scripts/cluster/kills.sh --short
scripts/book/run.sh
scripts/package/helm.sh
scripts/interop/bridge.sh
scripts/conformance/run.sh
scripts/interop/api.sh
scripts/interop/amqp-client.sh
scripts/interop/wire.sh
scripts/interop/proxy.sh
scripts/interop/page.sh --short
scripts/wireshark/run.sh
scripts/metrics/run.sh
python3 -B scripts/upgrade/run.py "$$DUNLIN"
"$(TARGET)/debug/xtask" spec --check
"$(TARGET)/debug/xtask" supply
scripts/kill/run.sh --short
scripts/interop/features.sh
scripts/interop/own.sh
endef

# Broker and simulator with one front, in one call of Cargo: it builds what they share once.
front = $(CARGO) test --quiet --package dunlin-broker --package dunlin-sim --lib --test it \
	--no-default-features --features dunlin-broker/$(1),dunlin-sim/$(1)

# Those of the first step build the firmware in one folder.
define MINI_STEPS
"$(TARGET)/debug/xtask" mcu-gate &&
scripts/mcu/scenarios.sh --quick &&
scripts/mcu/scenarios.sh --quick --smoltcp &&
scripts/mcu/scenarios.sh --client-certificate --only certificate
scripts/mcu/lint.sh
scripts/mcu/c-api.sh
INTEROP="$(TARGET)/debug/examples/interop" scripts/mcu/interop.sh --peer quinn --peer aioquic
"$(TARGET)/debug/xtask" mcu-crypto
scripts/mcu/tiny-size.sh
endef

define LAB_STEPS
"$(TARGET)/debug/dunlin-lab" link --self-test --short
"$(TARGET)/debug/dunlin-lab" check storm --short --out "$(TARGET)/lab"
"$(TARGET)/debug/dunlin-lab" run kumar-handshake kumar-hol --smoke --fresh --out "$(TARGET)/lab/smoke"
endef

check: ## the gate without third-party programs: cargo xtask ci
	$(CARGO) xtask ci

cluster: setup ## three nodes of Dunlin and of NATS on this machine, to try
	$(CARGO) build --release --package dunlin
	DUNLIN="$(TARGET)/release/dunlin" scripts/cluster/up.sh $(ARGS)

cluster-test: setup ## kills of a cluster, 100 rounds of each of eight kinds: hours (ROUNDS=5: minutes)
	$(CARGO) build --release --package dunlin
	DUNLIN="$(TARGET)/release/dunlin" scripts/cluster/kills.sh --rounds $(or $(ROUNDS),100) $(ARGS)

setup: ## install what the tests need and is missing
	scripts/setup-test.sh

interop: setup ## other clients and brokers, QUIC ones included (BROKERS=all builds rmqttd)
	scripts/setup-test.sh --brokers $(if $(filter all,$(BROKERS)),--rmqttd)
	$(CARGO) build --release --package dunlin --package dunlin-client --bin dunlin \
		--example features
	DUNLIN="$(TARGET)/release/dunlin" scripts/interop/run.sh --quic-peers --tunnel
	DUNLIN="$(TARGET)/release/dunlin" scripts/interop/features.sh --quic-peers
	DUNLIN="$(TARGET)/release/dunlin" scripts/interop/own.sh --brokers
	DUNLIN="$(TARGET)/release/dunlin" scripts/interop/bridge.sh --all
	DUNLIN="$(TARGET)/release/dunlin" scripts/interop/wire.sh --all
	DUNLIN="$(TARGET)/release/dunlin" scripts/interop/wire.sh --tunnel
	DUNLIN="$(TARGET)/release/dunlin" scripts/interop/amqp-client.sh --artemis
	DUNLIN="$(TARGET)/release/dunlin" scripts/interop/proxy.sh
	for broker in mqttv5 mqttv5-streams rmqttd; do \
		DUNLIN="$(TARGET)/release/dunlin" scripts/interop/run.sh --broker $$broker \
			--only dunlin || exit 1; \
	done
	python3 -B scripts/interop/book.py

page-test: ## the broker's page in Chromium, with 10,000 clients, and its pictures in the book
	scripts/setup-test.sh --page
	$(CARGO) build --release --package dunlin
	DUNLIN="$(TARGET)/release/dunlin" scripts/interop/page.sh --book $(ARGS)

sink-test: setup ## dunlin sink with PostgreSQL, NATS and Kafka, and kills of everything (ARGS='--rounds 200')
	$(CARGO) build --release --package dunlin
	DUNLIN="$(TARGET)/release/dunlin" scripts/sink/run.sh $(ARGS)

mcu-interop: setup ## the microcontroller's client and QUIC servers by others
	scripts/mcu/interop.sh --book $(ARGS)

lab-quic: setup ## QUIC on emulated links: wake-up, rebinding, isolation, memory, racing (root)
	$(CARGO) build --release --package dunlin --package dunlin-lab
	"$(TARGET)/release/dunlin-lab" check --out "$(TARGET)/lab" $(ARGS)

lab-quick: ## every experiment of the papers in its short form, with a report (root)
	scripts/setup-test.sh --lab
	$(CARGO) build --release --package dunlin --package dunlin-lab --package dunlin-tiny
	scripts/package/small.sh
	"$(TARGET)/release/dunlin-lab" run all --out "$(TARGET)/lab/runs" $(ARGS)

lab-book: ## the book's page of results, from the runs in target/lab/runs
	$(CARGO) build --release --package dunlin --package dunlin-lab --package dunlin-tiny
	"$(TARGET)/release/dunlin-lab" report --runs "$(TARGET)/lab/runs" --book docs/book/src

deb: ## a Debian package with a service, in target/debian/ (ARCH=arm64: for that machine)
	scripts/package/deb.sh $(ARCH)

deb-test: ## install the package in a clean root and in a booted one, use, upgrade, remove it (root)
	scripts/package/test.sh
	scripts/package/service.sh

small: ## the broker alone, as small as it gets; fails over 8 MiB
	scripts/package/small.sh

arm64: ## the broker alone, then the whole program, for arm64 (fetches Rust's library for it)
	scripts/package/arm64.sh $(ARGS)

arm64-test: ## run both under QEMU with this machine's clients
	$(CARGO) build --release --package dunlin
	scripts/package/arm64-test.sh

container: ## a container image of a static binary, in target/container/ (no daemon, no root)
	scripts/package/container.sh

container-test: ## unpack that image and run the broker in it as its user (root)
	scripts/package/container-test.sh

helm-test: ## lint the Helm chart, and check what it renders, with helm that is built first
	scripts/setup-test.sh --helm
	$(CARGO) build --package dunlin
	DUNLIN="$(TARGET)/debug/dunlin" scripts/package/helm.sh

publish-check: ## package every crate, compile each from its package, and all but upload it
	CARGO_PROFILE_DEV_DEBUG=0 $(CARGO) publish --workspace --dry-run $(ARGS)

firmware: ## the image for a microcontroller (fetches a compiler for it), and its size
	scripts/mcu/size.sh

firmware-run: setup ## run it under QEMU against a broker started for it
	$(CARGO) build --package dunlin
	DUNLIN="$(TARGET)/debug/dunlin" scripts/mcu/run.sh

mcu-report: setup ## measure the microcontroller's image under QEMU, and write the study
	$(CARGO) build --package dunlin
	DUNLIN="$(TARGET)/debug/dunlin" $(CARGO) xtask mcu-report

attack: ## random programs of hostile clients in the simulator (SEEDS=0..1000000)
	ATTACK_SEEDS=$(or $(SEEDS),0..1000000) $(CARGO) test --release -p dunlin-sim --test attack \
		-- --nocapture

innocent: setup ## what one client waits under each kind of attack, on sockets; one table
	$(CARGO) build --release --package dunlin
	DUNLIN="$(TARGET)/release/dunlin" python3 -B scripts/soak/innocent.py $(ARGS)

soak: setup ## load, kills, a full disk, new addresses, attacks; one table (SECONDS=1800)
	$(CARGO) build --release --package dunlin
	DUNLIN="$(TARGET)/release/dunlin" scripts/soak/run.sh --seconds $(or $(SECONDS),1800)

supply-chain: ## advisories, licences, versions, sources (installs cargo-deny), and the SBOM
	$(CARGO) xtask supply
	$(CARGO) xtask sbom
	@command -v cargo-deny >/dev/null || $(CARGO) install --locked cargo-deny \
		--root "$(TARGET)/tools"
	PATH="$(abspath $(TARGET))/tools/bin:$$PATH" $(CARGO) deny --workspace check $(ARGS)

reproducible: ## build the release twice in two folders, and compare
	scripts/reproducible.sh $(ARGS)

bench-acl: ## what 10,000 users in password file and access list cost
	$(CARGO) build --release --package dunlin
	DUNLIN="$(TARGET)/release/dunlin" bench/acl.sh $(ARGS)

bench-operate: ## what it costs that operators look
	$(CARGO) build --release --package dunlin
	DUNLIN="$(TARGET)/release/dunlin" bench/operate.sh $(ARGS)

bench-sink: ## what a message costs dunlin sink into PostgreSQL (ARGS='json keyed')
	$(CARGO) build --release --package dunlin
	DUNLIN="$(TARGET)/release/dunlin" bench/sink.sh $(ARGS)

bench: setup ## the table beside Debian's mosquitto
	$(CARGO) build --release --package dunlin
	DUNLIN="$(TARGET)/release/dunlin" bench/compare.sh

doc: ## documentation of the crates, and the book when mdbook is there
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --workspace --no-deps
	@if command -v mdbook >/dev/null; then mdbook build docs/book; \
	else echo "doc: skipped: the book needs mdbook (cargo install mdbook)"; fi

clean: ## remove everything that was built or downloaded
	$(CARGO) clean
	rm -rf target docs/book/book
