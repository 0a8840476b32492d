# make build   the two programs, in bin/
# make image   the container image, in dist/image.tar
# make release everything that a release consists of, in dist/, verified
# make test    everything that has to hold: format, vet, static analysis, all tests
# make chart   the Helm chart: linted, rendered, and read as Kubernetes reads it
# make bench   what it costs, each figure beside a floor measured in the same run
# make fuzz    each fuzz test for FUZZTIME: a count (go test -fuzz reports a time that
#              ends within an input as a failure now and then)
# make soak    faults at random for SOAK (a duration), on programs with the race
#              detector; SEED=n repeats the choices of a run
GO       ?= go
FUZZTIME ?= 100000x
SOAK     ?= 10m
TOOL     := $(GO) tool -modfile=$(CURDIR)/tools/go.mod
MODULES  := . e2e e2e/alerts

# Everything is compiled as it is released, so that this is what is tested and
# measured, and compiled once. Only the race detector needs cgo.
export CGO_ENABLED := 0
export GOFLAGS     := $(GOFLAGS) -trimpath
RACE               := CGO_ENABLED=1 $(GO) test -race

check = set -e; for m in $(1); do echo "vet and staticcheck in $$m"; (cd $$m && $(GO) vet ./... && $(TOOL) staticcheck ./...); done

.PHONY: all build image release test need lint unit chart e2e bench fuzz soak clean

all: build

build:
	scripts/build bin

# VERSION is for both; the release asks git when it is not given.
image:
	@rm -rf dist/programs
	GOOS=linux GOARCH=amd64 scripts/build dist/programs/linux_amd64
	GOOS=linux GOARCH=arm64 scripts/build dist/programs/linux_arm64
	cd tools/image && $(GO) run . -dockerfile $(CURDIR)/deploy/Dockerfile -programs $(CURDIR)/dist/programs -o $(CURDIR)/dist/image.tar \
	  -version '$(VERSION)' -revision "$$(git log -1 --format=%H)" -created "$$(git log -1 --format=%cI)"
	@rm -r dist/programs

release:
	@$(call check,tools/image tools/release)
	cd tools/image && $(GO) test ./...
	cd tools/release && $(GO) test ./... && $(GO) run . -root $(CURDIR) -version '$(VERSION)' $(RELEASE)

test: need lint unit chart e2e

# What the tests need besides Go; installed with apt where that is possible.
need:
	@scripts/need

lint:
	@test -z "$$(gofmt -l $$(git ls-files '*.go'))" || { gofmt -d $$(git ls-files '*.go'); exit 1; }
	@$(call check,$(MODULES))

# What would take minutes with the race detector, and has nothing to do with
# races, runs without it.
unit:
	$(RACE) -short $$($(GO) list ./... | grep -v /bench)
	$(GO) test ./bench ./callback
	$(GO) test -run 'TestLog|TestTorn' ./changelog/...
	$(GO) test -run TestLargeScrape ./cmd/rshub

# Not vetted: with the types of Kubernetes that takes half as long as all the rest. Not
# cached: the chart is outside of that module. UPDATE=-update writes the golden files
# and the table of values anew.
chart:
	cd deploy/helm/test && $(TOOL) staticcheck ./... && $(GO) test -count=1 -vet=off ./... $(UPDATE)

# Not cached: Go does not know that these tests build the programs.
e2e:
	cd e2e && $(GO) test -count=1 ./...

bench:
	$(GO) run ./bench $(BENCH)

fuzz:
	scripts/fuzz $(FUZZTIME)

soak:
	@cd e2e && RSHUB_E2E_RACE=1 RSHUB_SOAK=$(SOAK) RSHUB_SOAK_SEED=$(SEED) $(RACE) -count=1 -timeout 0 -v -run '^TestSoak$$' .

clean:
	rm -rf bin dist
