# make build      the three programs, in bin/
# make test       the gate: check, and smoke tests of the built programs (e2e/smoke)
# make check      lint, and the short tests of each package
# make lint       format, vet and staticcheck
# make prove      the long tests (docs/dev/testing.md); PART=NAME runs one part, make parts
#                 lists them
# make bench      measurements relative to a floor of the same run; BENCH has the flags
# make fuzz       all fuzz tests, FUZZTIME inputs each (not a duration, whose end go test -fuzz
#                 can report as a failure)
# make mutants    the deliberate faults in tools/mutants, which tests must detect; MUTANTS is a
#                 pattern
# make soak       random faults for the duration SOAK; SEED=n repeats a run
# make chart      the Helm chart; UPDATE=-update writes its golden files and tables
# make image      the container image, in dist/image.tar
# make release    all artifacts of a release, in dist/, verified
# make verify     checks the checksums of all downloaded modules
GO       ?= go
FUZZTIME ?= 100000x
SOAK     ?= 10m

# Programs are built without cgo. With -trimpath, all checkouts share Go's build cache.
export CGO_ENABLED := 0
export GOFLAGS     := $(GOFLAGS) -trimpath

# The gate vets and tests one build of each package, with the race detector. That requires cgo;
# the tag selects the zstd implementation of programs without cgo.
lint unit smoke soak: private export CGO_ENABLED := 1
lint unit smoke soak: private export GOFLAGS := $(GOFLAGS) -race -tags=pebblegozstd
smoke soak: export RSHUB_E2E_RACE := 1

# Go tools, with the versions in tools/go.mod.
GOTESTSUM   := $(CURDIR)/bin/tools/gotestsum
STATICCHECK := $(CURDIR)/bin/tools/staticcheck -checks=all

# $(call gotest,DIR,PACKAGES,FLAGS) tests packages of the module in DIR. If at most two tests
# fail, they run again, and a pass is reported as flaky. JUNIT=DIR writes JUnit files.
gotest = cd $(1) && $(GOTESTSUM) --format=pkgname --format-hide-empty-pkg --hide-summary=skipped \
	--rerun-fails=1 --rerun-fails-max-failures=2 --rerun-fails-run-root-test --rerun-fails-abort-on-data-race \
	$(if $(JUNIT),--junitfile=$(JUNIT)/$@-$$$$.xml) --packages="$(2)" -- -vet=off $(3)

# $(call e2e,PACKAGES,FLAGS) tests the built programs. Results are not cached, because Go does not
# know that these tests depend on the programs.
e2e = $(call gotest,e2e,$(1),-count=1 -timeout=0 -parallel=4 -p=1 $(2))

.PHONY: all build image release verify check test unit smoke lint need prove parts chart bench fuzz mutants soak clean

all: build

build:
	tools/scripts/build bin

bin/tools/gotestsum: tools/go.mod
	$(GO) build -modfile=tools/go.mod -o $@ gotest.tools/gotestsum
bin/tools/staticcheck: tools/go.mod
	$(GO) build -modfile=tools/go.mod -o $@ honnef.co/go/tools/cmd/staticcheck

# --- the gate ---

test: check smoke

check: lint unit

# Installs the programs that the gate needs, with apt if possible.
need:
	@tools/scripts/need

lint: need bin/tools/staticcheck
	@test -z "$$(gofmt -l $$(git ls-files '*.go'))" || { gofmt -d $$(git ls-files '*.go'); exit 1; }
	$(GO) vet ./... && $(STATICCHECK) ./...
	cd e2e && $(GO) vet ./smoke && $(STATICCHECK) ./smoke
	cd tools/bench && $(GO) vet .

unit: need bin/tools/gotestsum
	$(call gotest,.,./...,-short -parallel=6 -p=3)

smoke: need bin/tools/gotestsum
	$(call e2e,./smoke)

# $(call packages,PATTERNS,REGEXP) lists the packages that do not match REGEXP.
packages = $$($(GO) list $(1) | grep -vE '$(2)' | tr '\n' ' ')

# --- the long tests ---

PARTS := lint stores points long attack callback cluster ends follow dialect inventory mirror openapi operate clients \
	page polled proxy deploy soak mutants licences bench

prove: $(if $(PART),prove-$(PART),$(PARTS:%=prove-%))
parts:
	@echo $(PARTS)

$(PARTS:%=prove-%): need-all bin/tools/gotestsum
.PHONY: need-all $(PARTS:%=prove-%)
need-all:
	@tools/scripts/need all

STORES := ./changelog/... ./callback/subscription/... ./internal/claim/... ./internal/inventory/... ./internal/redisconn/...
stores := /(changelog|callback/subscription|internal/claim|internal/inventory|internal/redisconn)(/|$$)

prove-lint: bin/tools/staticcheck
	cd e2e && $(GO) vet ./... && $(STATICCHECK) ./...
	for module in image release bench; do (cd tools/$$module && $(GO) vet ./... && $(STATICCHECK) ./...) || exit 1; done
	$(GO) run -modfile=tools/go.mod github.com/rhysd/actionlint/cmd/actionlint
prove-stores:
	$(call gotest,.,$(STORES),-parallel=6 -timeout=0)
prove-points: export RSHUB_PROVE := 1
prove-points:
	$(call gotest,.,./changelog/disklog ./changelog/redislog,-count=1 -timeout=0 -parallel=6 -run='^(TestFaultPoints|TestDamageAtRest)$$')
	$(call gotest,.,./changelog/disklog ./changelog/redislog ./internal/inventory ./internal/inventory/diskpages,-count=1 -timeout=0 -run='^(TestInventories|TestInventory|TestMemoryInventory)$$')
	$(call gotest,.,./internal/source/directory,-count=1 -timeout=0 -run=^TestWatcher)
prove-long:
	$(call gotest,.,$(call packages,./...,$(stores)),-timeout=0)
prove-attack:
	$(call e2e,./attack,-parallel=2)
prove-callback:
	$(call e2e,./callback ./conformance)
prove-cluster:
	$(call e2e,./cluster ./faults,-skip=^TestEnds$$)
prove-ends:
	$(call e2e,./faults,-run=^TestEnds$$)
prove-follow:
	$(call e2e,./follow ./publish,-p=2)
prove-dialect prove-inventory prove-operate prove-clients prove-page prove-polled prove-proxy: prove-%:
	$(call e2e,./$*)
prove-mirror:
	$(call e2e,./mirror ./source,-p=2)
prove-openapi:
	$(call e2e,./openapi,-parallel=2)
prove-deploy: chart
	cd tools/image && $(GO) test .
	$(call e2e,./deploy)
prove-soak: soak
prove-mutants: mutants
prove-licences: verify
	tools/scripts/licences /dev/null
prove-bench:
	$(call gotest,tools/bench,./...,-timeout=0)

# Not cached, because the chart is outside of the module.
chart:
	cd e2e && $(GO) test -count=1 -vet=off ./alerts && $(GO) test -count=1 -vet=off ./chart $(UPDATE)

mutants:
	tools/scripts/mutants '$(or $(MUTANTS),*)'

fuzz:
	tools/scripts/fuzz $(FUZZTIME)

soak:
	cd e2e && RSHUB_SOAK=$(SOAK) RSHUB_E2E_SEED=$(SEED) $(GO) test -count=1 -timeout 0 -v -run '^TestSoak$$' ./faults

bench:
	$(GO) build -C tools/bench -o $(CURDIR)/bin/tools/bench . && bin/tools/bench $(BENCH)

# --- artifacts ---

# The image is named localhost/rshub, with the tag that the chart uses.
image: PROGRAMS := $(CURDIR)/dist/programs
image:
	@rm -rf $(PROGRAMS)
	for a in amd64 arm64; do GOOS=linux GOARCH=$$a tools/scripts/build $(PROGRAMS)/linux_$$a || exit 1; done
	tools/scripts/licences $(PROGRAMS)/THIRD_PARTY.txt
	for a in amd64 arm64; do cp $(PROGRAMS)/THIRD_PARTY.txt $(PROGRAMS)/linux_$$a || exit 1; done
	cd tools/image && $(GO) run . -root $(CURDIR) -programs $(PROGRAMS) -o $(CURDIR)/dist/image.tar -version '$(VERSION)' \
		-tag "$$(sed -n 's/^appVersion: //p' $(CURDIR)/deploy/helm/rshub/Chart.yaml)" -revision "$$(git log -1 --format=%H)" -created "$$(git log -1 --format=%cI)"
	@rm -r $(PROGRAMS)

release: verify
	tools/scripts/release

verify:
	tools/scripts/verify -strict

clean:
	rm -rf bin dist
