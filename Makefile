# make build   the three programs, in bin/
# make image   the container image, in dist/image.tar
# make release everything that a release consists of, in dist/, verified
# make check   what is quick to know: format, vet, static analysis, and the short tests
#              of each package, with the race detector
# make test    everything that has to hold: check, the long tests of each package
#              (whole), the built programs from outside (e2e), the chart, and that a
#              few mutants are noticed (sample)
# make prove   what takes longer than that: all mutants, every fault point, the soak,
#              and tests in their full size; see docs/promise.md. SEED=n repeats the
#              choices of a run, SOAK is how long the soak takes
# make mutants that each wrong edit in tools/mutants/patches is noticed by the test that
#              it names; MUTANTS is a pattern of names
# make chart   the Helm chart: linted, rendered, and read as Kubernetes reads it
# make verify  that every module that Go downloaded is what the checksums say, for each
#              module of the repository
# make licences writes THIRD_PARTY.md, which make lint compares
# make bench   what it costs, each figure beside a floor measured in the same run
# make fuzz    each fuzz test for FUZZTIME: a count (go test -fuzz reports a time that
#              ends within an input as a failure now and then)
# make soak    faults at random for SOAK (a duration), on programs with the race
#              detector; SEED=n repeats the choices of a run
GO       ?= go
FUZZTIME ?= 100000x
SOAK     ?= 10m
TOOL     := $(GO) tool -modfile=$(CURDIR)/tools/go.mod
MODULES  := e2e e2e/alerts tools/licences tools/mutants

# Everything is compiled as it is released, so that this is what is tested and
# measured, and compiled once. Only the race detector needs cgo. With cgo, Pebble would take the
# Zstandard that is written in C, which is slow to compile; the tag has it take the one in Go, as
# it does in what is released.
#
# Tests are not vetted when they run, because make lint does that: go test would vet all their
# dependencies, too, once for each way in which these are compiled.
export CGO_ENABLED := 0
export GOFLAGS     := $(GOFLAGS) -trimpath
TEST               := $(GO) test -vet=off
RACE               := CGO_ENABLED=1 $(TEST) -race -tags=pebblegozstd

check = set -e; tool=$$($(TOOL) -n staticcheck); for m in $(1); do echo "vet and staticcheck in $$m"; (cd $$m && $(2) $(GO) vet ./... && $(2) "$$tool" ./...); done

.PHONY: all build image release verify licences check test prove need lint unit whole faults volume chart e2e bench fuzz sample mutants points soak clean

all: build

build:
	scripts/build bin

# VERSION is for both; the release finds it when it is not given. The image's name in its
# file is localhost/rshub, with the tag that the chart asks for.
image:
	@rm -rf dist/programs
	GOOS=linux GOARCH=amd64 scripts/build dist/programs/linux_amd64
	GOOS=linux GOARCH=arm64 scripts/build dist/programs/linux_arm64
	cd tools/image && $(GO) run . -dockerfile $(CURDIR)/deploy/Dockerfile -programs $(CURDIR)/dist/programs -o $(CURDIR)/dist/image.tar \
	  -version '$(VERSION)' -tag "$$(sed -n 's/^appVersion: //p' $(CURDIR)/deploy/helm/rshub/Chart.yaml)" -revision "$$(git log -1 --format=%H)" -created "$$(git log -1 --format=%cI)"
	@rm -r dist/programs

release: verify
	@$(call check,tools/image tools/release)
	cd tools/image && $(GO) test ./...
	cd tools/release && $(GO) test ./... && $(GO) run . -root $(CURDIR) -version '$(VERSION)' $(RELEASE)

verify:
	scripts/verify -strict

licences:
	cd tools/licences && $(GO) run . -write

check: need lint unit

test: check whole chart e2e sample

prove: points mutants soak
	@$(programs); cd e2e && RSHUB_E2E_FULL=1 RSHUB_E2E_SEED=$(SEED) $(GO) test -count=1 -p 1 -timeout 0 -v ./attack ./callback ./ends ./inventory ./linear

# What the tests need besides Go; installed with apt where that is possible.
need:
	@scripts/need

# Staticcheck has all packages and tests compiled. Those of rshub it reads as make unit runs them,
# so that both have the same compiled.
lint:
	@test -z "$$(gofmt -l $$(git ls-files '*.go'))" || { gofmt -d $$(git ls-files '*.go'); exit 1; }
	@$(call check,.,CGO_ENABLED=1 GOFLAGS='$(GOFLAGS) -race -tags=pebblegozstd')
	@$(call check,$(MODULES))
	cd tools/licences && $(GO) test . && $(GO) run .
	scripts/verify . e2e tools

# The tests of conformance are not cached: Go does not know that they build rshub.
unit:
	$(RACE) -short $$($(GO) list ./... | grep -v /bench)
	$(TEST) -count=1 ./conformance

# What would take minutes with the race detector, and has nothing to do with
# races, runs without it. The faults of Redis mostly wait, so they run beside each other, and
# the rest beside them.
whole:
	@$(MAKE) --no-print-directory -j2 -Otarget faults volume

faults:
	$(TEST) -parallel 6 -run 'TestLog|TestTorn|TestFaultPoints|TestDamageAtRest' ./changelog/...
	$(TEST) -run '^(TestInventories|TestInventory|TestMemoryInventory)$$' ./changelog/disklog ./changelog/redislog ./inventory ./inventory/diskpages

volume:
	$(TEST) ./bench ./callback ./inventory/audit ./resourcesync
	$(TEST) -run 'TestLargeScrape|TestMatrix|TestAPIAnswers|TestWithoutPoller|TestFromIs|TestIndexIsBounded|TestResourceListIsCut|TestStreamed|TestSlowPages|TestBombs' ./server ./documents ./subscribe ./hub

# Not vetted: with the types of Kubernetes that takes half as long as all the rest. Not
# cached: the chart is outside of that module. UPDATE=-update writes the golden files
# and the table of values anew.
chart:
	cd deploy/helm/test && $(TOOL) staticcheck ./... && $(GO) test -count=1 -vet=off ./... $(UPDATE)

# Builds the programs, for all packages of e2e, until the end of the recipe's line.
programs = set -e; dir=$$(mktemp -d); trap 'rm -r "$$dir"' EXIT; scripts/build "$$dir"; export RSHUB_E2E_PROGRAMS="$$dir"

# Not cached: Go does not know that these tests run the programs. Packages that mostly wait
# run beside each other. The others measure time: they come later, one after the other.
BESIDE := clients|deploy|dialects|ends|follow|inventory|linear|mirror|operate|page|proxy|publish|soak|source|xmpp
e2e:
	@$(programs); cd e2e; all=$$($(GO) list ./...); \
	  $(TEST) -count=1 -p 2 -parallel 4 $$(echo "$$all" | grep -E '/e2e/($(BESIDE))$$'); \
	  $(TEST) -count=1 -p 1 $$(echo "$$all" | grep -vE '/e2e/($(BESIDE))$$')

# Not cached: Go does not know that these tests read the whole tree.
sample:
	cd tools/mutants && $(GO) test -count=1 . && $(GO) run . -run '^(filter-holds-the-cursor|block-checksum|disk-key-hash)$$'

mutants:
	cd tools/mutants && $(GO) run . -run '$(MUTANTS)'

# Each operation of the disk, and each request to Redis and each answer, fails once;
# and each byte is damaged once. So does each call of a commit of an inventory, and other
# commits come between any two of them.
points:
	RSHUB_PROVE=1 $(GO) test -count=1 -timeout 0 -parallel 6 -run '^(TestFaultPoints|TestDamageAtRest)$$' ./changelog/disklog ./changelog/redislog
	RSHUB_PROVE=1 $(GO) test -count=1 -timeout 0 -run '^(TestInventories|TestInventory|TestMemoryInventory)$$' ./changelog/disklog ./changelog/redislog ./inventory ./inventory/diskpages
	RSHUB_PROVE=1 $(GO) test -count=1 -run '^TestWatcher' ./directory

bench:
	$(GO) run ./bench $(BENCH)

fuzz:
	scripts/fuzz $(FUZZTIME)

soak:
	@cd e2e && RSHUB_E2E_RACE=1 RSHUB_SOAK=$(SOAK) RSHUB_SOAK_SEED=$(SEED) $(RACE) -count=1 -timeout 0 -v -run '^TestSoak$$' ./soak

clean:
	rm -rf bin dist
