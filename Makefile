# make build   the two programs, in bin/
# make test    everything that has to hold: format, vet, static analysis, all tests
# make bench   what it costs, each figure beside a floor measured in the same run
# make fuzz    each fuzz test for FUZZTIME: a count (go test -fuzz reports a time that
#              ends within an input as a failure now and then)
# make soak    faults at random for SOAK (a duration), on programs with the race
#              detector; SEED=n repeats the choices of a run
GO       ?= go
FUZZTIME ?= 100000x
SOAK     ?= 10m
TOOL     := $(GO) tool -modfile=$(CURDIR)/tools/go.mod
MODULES  := . e2e

.PHONY: all build test need lint unit e2e bench fuzz soak clean

all: build

build:
	scripts/build bin

test: need lint unit e2e

# What the tests need besides Go; installed with apt where that is possible.
need:
	@scripts/need

lint:
	@test -z "$$(gofmt -l $$(git ls-files '*.go'))" || { gofmt -d $$(git ls-files '*.go'); exit 1; }
	@set -e; for m in $(MODULES); do echo "vet and staticcheck in $$m"; (cd $$m && $(GO) vet ./... && $(TOOL) staticcheck ./...); done

# What would take minutes with the race detector, and has nothing to do with
# races, runs without it.
unit:
	$(GO) test -race -short ./...
	$(GO) test -run 'TestLog|TestTorn|TestDisk|TestRedis' ./changelog/... ./callback

# Not cached: Go does not know that these tests build the programs.
e2e:
	cd e2e && $(GO) test -count=1 ./...

bench:
	$(GO) run ./bench $(BENCH)

fuzz:
	scripts/fuzz $(FUZZTIME)

soak:
	@cd e2e && RSHUB_E2E_RACE=1 RSHUB_SOAK=$(SOAK) RSHUB_SOAK_SEED=$(SEED) $(GO) test -race -count=1 -timeout 0 -v -run '^TestSoak$$' .

clean:
	rm -rf bin
