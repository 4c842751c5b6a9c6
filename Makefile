# Build, run, test. Every target first puts in place what it needs (scripts/install.sh), once.

# The toolchain of go.mod where it can be had; a machine that sets GOTOOLCHAIN=local, or has no network, uses its own Go.
GOTOOLCHAIN ?= $(shell GOTOOLCHAIN=go1.27.3+auto go version >/dev/null 2>&1 && echo go1.27.3+auto || echo local)
export GOTOOLCHAIN

# DuckDB hands over Arrow only with this tag.
TAGS := duckdb_arrow
# Two at a time: linking DuckDB takes 2 GB.
JOBS ?= 2
DATA ?= data

SOURCES := $(shell find cmd catalogpg planner server sql writer -name '*.go' -not -name '*_test.go' -o -name '*.sql' 2>/dev/null) go.mod go.sum
PACKAGES ?= ./...

.PHONY: build run test conformance drivers random lint bench demo fuzz clean

build: bin/sluice

bin/sluice: $(SOURCES) | .install/build
	go build -p $(JOBS) -tags $(TAGS) -o $@ ./cmd/sluice

# Settings: SLUICE_… variables, or make run FLAGS='--listen …'.
run: bin/sluice | .install/run
	exec bin/sluice serve --data $(DATA) $(FLAGS)

test: bin/sluice | .install/test
	go vet -tags $(TAGS) $(PACKAGES)
	go test -p $(JOBS) -tags $(TAGS) -timeout 40m $(PACKAGES)

# What we promise, proven from outside; longer than test.
conformance: bin/sluice | .install/test .install/conformance
	SLUICE_ENGINES='pyiceberg duckdb polars spark' go test -p 1 -tags $(TAGS),invariants -count=1 -timeout 60m ./conformance/...

# A driver's own test suite against the gateway: make drivers NAME=pgx; ON=postgres runs it on a real Postgres. Of what is in conformance/drivers.
NAME ?= pgx
ON ?= sluice
drivers: | .install/run
	GOTOOLCHAIN=$(GOTOOLCHAIN) conformance/drivers/run -on $(ON) $(NAME)

# Random statements against Postgres, seed after seed, until N are in docs/results/random.tsv; a difference ends it, the next call goes on.
# The servers' files are in memory: nothing is killed here, and syncing would be most of the time.
N ?= 1000000
random: bin/sluice | .install/test
	TMPDIR=$(firstword $(wildcard /dev/shm /tmp)) SLUICE_FLUSH_AGE=20s nice -n 10 go test -tags $(TAGS) -count=1 -timeout 0 ./conformance -run 'TestRandom$$' \
	  -until $(N) -statements 3000 -state-every 50 -flush-every 100 -log ../docs/results/random.tsv -label $(shell git describe --always --dirty)

lint: | .install/build
	@test -z "$$(gofmt -l cmd catalogpg conformance planner server sql writer)" || { gofmt -l cmd catalogpg conformance planner server sql writer; exit 1; }
	go vet -tags $(TAGS) ./...
	go vet -tags $(TAGS),invariants ./...
	go mod tidy -diff

# Side by side with a Postgres on the same disk; writes docs/results. BENCH='-quick' or '-only copy' for less.
bench: bin/sluice | .install/test
	go run -tags $(TAGS) ./conformance/bench $(BENCH)

demo: bin/sluice | .install/run
	scripts/demo.sh

# The parsers of what strangers send, each for FUZZTIME.
FUZZTIME ?= 1m
fuzz: | .install/build
	scripts/fuzz.sh $(FUZZTIME)

clean:
	rm -rf bin .install

# A stamp for each thing that was put in place. Remove .install to look again.
.install/test: conformance/engines/requirements.txt
.install/conformance: conformance/engines/requirements-conformance.txt conformance/engines/spark_session.py | .install/test

.install/%: scripts/install.sh
	scripts/install.sh $*
	@mkdir -p .install && touch $@
