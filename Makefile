SHELL := /bin/bash
# Where rustup puts the tools, for shells that have not heard of it yet.
export PATH := $(PATH):$(HOME)/.cargo/bin

# How long `make chaos` goes on, and `make fuzz` for each target. SEED repeats a run.
SECONDS ?= 600
SEED ?=

.DEFAULT_GOAL := help
.PHONY: help build test lint demo bench bench-server bench-transcode bench-streamer bench-wake flood scaling chaos chaos-fleet chaos-platform hostile soak upgrade contract fuzz check-deploy model clean

help: ## Show this list
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 18

build: ## Build the program, for use: target/release/vodmill
	@scripts/install-missing build
	cargo build --release -p vodmill --locked

test: ## Check format and lints, then run all tests, on a PostgreSQL, a PgBouncer and a Redis of their own
	@scripts/install-missing test
	@scripts/with-services scripts/run-tests

lint: ## Check format, lints, shell scripts, and the licences and sources of dependencies
	@scripts/install-missing lint
	cargo fmt --all --check
	cargo clippy --workspace --all-targets --locked -- -D warnings
	shellcheck .ci/run bench/*.sh fuzz/make-corpus scripts/*
	cargo deny --locked check --hide-inclusion-graph bans licenses sources
	@scripts/check-advisories

demo: ## Make a stream of a sample video, or of VIDEO=FILE, and check it
	@scripts/install-missing demo
	@$(MAKE) --no-print-directory build
	@VIDEO='$(VIDEO)' scripts/demo

bench: build ## Measure the queue on both engines; keeps the figures in bench/results
	@scripts/install-missing bench
	@scripts/with-services bench/queue.sh

bench-server: build ## Measure a server with 1,000 simulated workers and listeners; keeps the figures in bench/results
	@scripts/install-missing bench
	@mkdir -p bench/results
	@scripts/with-services bench/server.sh | tee bench/results/server-$$(date +%F).md

flood: build ## Open CONNECTIONS=2000 bad connections of each kind for SECONDS=60; keeps the figures in bench/results
	@mkdir -p bench/results
	@CONNECTIONS='$(or $(CONNECTIONS),2000)' SECONDS_EACH='$(if $(filter 600,$(SECONDS)),60,$(SECONDS))' bench/flood.sh \
	  | tee bench/results/flood-$$(date +%F).md

bench-wake: build ## Measure how workers are told of work: polling, NOTIFY, Redis; keeps the figures in bench/results
	@scripts/install-missing bench
	@mkdir -p bench/results
	@scripts/with-services bench/wake.sh | tee bench/results/wake-$$(date +%F).md

bench-transcode: build ## Measure transcoding beside one plain ffmpeg command; keeps the figures in bench/results
	@scripts/install-missing demo
	@mkdir -p bench/results
	@bench/transcode.sh | tee bench/results/transcode-$$(date +%F).md

bench-streamer: build ## Measure transcoding beside shaka-streamer; keeps the figures in bench/results
	@scripts/install-missing streamer
	@mkdir -p bench/results
	@bench/streamer.sh | tee bench/results/streamer-$$(date +%F).md

scaling: build ## Simulate one long video on 1 to 1,000 workers; writes docs/scaling.md
	@bench/scaling.sh

chaos-fleet: ## Kill, pause and cut off workers of a server that makes VIDEOS=10 videos, and the server
	@scripts/install-missing test
	@VODMILL_FLEET_VIDEOS='$(or $(VIDEOS),10)' $(if $(SEED),VODMILL_FLEET_SEED='$(SEED)') RUST_TEST_THREADS=1 \
	  scripts/with-services cargo test --workspace --test program --locked -- a_fleet_that_is_killed --nocapture

chaos-platform: ## Strike three servers, WORKERS=8 workers, PostgreSQL, Redis and the storage while VIDEOS=50 videos are made
	@scripts/install-missing test
	@VODMILL_PLATFORM_VIDEOS='$(or $(VIDEOS),50)' VODMILL_PLATFORM_WORKERS='$(or $(WORKERS),8)' \
	  $(if $(SEED),VODMILL_PLATFORM_SEED='$(SEED)') \
	  scripts/with-services cargo test --workspace --test program --locked -- storage::platform --nocapture

chaos: ## Kill and pause workers at random for SECONDS=600; SEED=… repeats a run
	@scripts/install-missing test
	@VODMILL_CHAOS_SECONDS='$(SECONDS)' $(if $(SEED),VODMILL_CHAOS_SEED='$(SEED)') \
	  scripts/with-services cargo test --workspace --test program --locked -- chaos:: --ignored --nocapture

hostile: ## Let a hostile worker answer ROUNDS=10000 claims with lies while videos are made; SEED=… repeats its choice
	@scripts/install-missing test
	@VODMILL_HOSTILE_ROUNDS='$(or $(ROUNDS),10000)' $(if $(SEED),VODMILL_HOSTILE_SEED='$(SEED)') \
	  scripts/with-services cargo test --workspace --test program --locked -- attacks::hostile --nocapture

soak: ## Load a server for MINUTES=30 and see that memory and open files stay flat; keeps the figures in bench/results
	@scripts/install-missing test
	@mkdir -p bench/results
	@set -o pipefail; MINUTES='$(or $(MINUTES),30)' ENGINE='$(or $(ENGINE),sqlite)' scripts/with-services bench/soak.sh \
	  | tee bench/results/soak-$$(date +%F).md

# The last commit before the newest migration: one whose schema is this one's would show less.
PREVIOUS = $(shell git log -1 --diff-filter=A --format=%H -- crates/store/migrations/postgres)^

upgrade: ## Replace servers and workers of FROM=COMMIT (default: of the schema before) by those of this version while videos are made
	@scripts/install-missing test
	@scripts/previous '$(or $(FROM),$(PREVIOUS))'
	@VODMILL_PREVIOUS='$(CURDIR)/target/previous/target/debug/vodmill' scripts/with-services \
	  cargo test --workspace --test program --locked -- storage::upgrade --ignored --nocapture

contract: ## Ask the API everything its OpenAPI document allows, and more, for minutes
	@scripts/install-missing test
	@VODMILL_CONTRACT_PHASES=examples,coverage,fuzzing,stateful scripts/with-services \
	  cargo test --workspace --test program --locked -- server::contract --nocapture

fuzz: ## Fuzz every parser of untrusted bytes for SECONDS=600 each, or one of them: TARGET=mp4
	@scripts/install-missing fuzz
	@scripts/fuzz '$(SECONDS)' $(TARGET)

check-deploy: ## Check the files in deploy/: units, container, compose, Kubernetes, alerts
	@scripts/install-missing deploy
	@scripts/check-deploy

model: ## Walk larger worlds than `make test` does: millions of states, minutes
	@scripts/install-missing build
	cargo test -p vodmill-rules --test model --locked -- --ignored --nocapture

clean: ## Remove what building and the demo left
	cargo clean
	rm -rf vodmill-data/demo
