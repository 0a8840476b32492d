# make build     the three programs, in bin/
# make image     the container image, in dist/image.tar
# make release   everything that a release consists of, in dist/, verified
# make check     format, vet, static analysis, and the short tests of each package
# make test      the gate, what any change may break: check, and the built programs (e2e/smoke)
# make concerned SINCE=COMMIT
#                the parts of prove that the changes since a commit concern
# make prove     all the rest: the parts that have not passed at this commit; or PART=NAME.
#                CONTRIBUTING.md lists the parts
# make mutants   that each wrong edit in tools/mutants/patches is noticed by the test that
#                it names; MUTANTS is a pattern of names
# make chart     the Helm chart: linted, rendered, and read as Kubernetes reads it
# make verify    that every module that Go downloaded is what the checksums say, for each
#                module of the repository
# make licences  writes THIRD_PARTY.md, which make thirdparty compares
# make bench     what it costs, each figure beside a floor measured in the same run
# make fuzz      each fuzz test for FUZZTIME: a count (go test -fuzz reports a time that
#                ends within an input as a failure now and then)
# make soak      faults at random for SOAK (a duration), on programs with the race
#                detector; SEED=n repeats the choices of a run
GO       ?= go
FUZZTIME ?= 100000x
SOAK     ?= 10m
TOOL     := $(GO) tool -modfile=$(CURDIR)/tools/go.mod

# Everything is compiled as it is released, so that this is what is tested and
# measured, and compiled once. Only the race detector needs cgo.
export CGO_ENABLED := 0
export GOFLAGS     := $(GOFLAGS) -trimpath

# Vet and staticcheck, for packages of a module.
check = cd $(1) && $(GO) vet $(2) && $(TOOL) staticcheck $(2)

.PHONY: all build image release verify licences thirdparty packaging check test concerned prove need lint tools chart bench fuzz mutants soak clean

all: build

build:
	scripts/build bin

# VERSION is for both; the release finds it when it is not given. The image's name in its
# file is localhost/rshub, with the tag that the chart asks for.
image:
	@rm -rf dist/programs
	GOOS=linux GOARCH=amd64 scripts/build dist/programs/linux_amd64
	GOOS=linux GOARCH=arm64 scripts/build dist/programs/linux_arm64
	cd tools/image && $(GO) run . -root $(CURDIR) -programs $(CURDIR)/dist/programs -o $(CURDIR)/dist/image.tar \
	  -version '$(VERSION)' -tag "$$(sed -n 's/^appVersion: //p' $(CURDIR)/deploy/helm/rshub/Chart.yaml)" -revision "$$(git log -1 --format=%H)" -created "$$(git log -1 --format=%cI)"
	@rm -r dist/programs

release: verify packaging
	cd tools/release && $(GO) run . -root $(CURDIR) -version '$(VERSION)' $(RELEASE)

# The tests of the image and of the release.
packaging:
	cd tools && $(GO) test ./image ./release

verify:
	scripts/verify -strict

licences:
	cd tools/licences && $(GO) run . -write

thirdparty:
	cd tools && $(GO) test ./licences
	cd tools/licences && $(GO) run .
	scripts/verify

# tools/proof has the parts, and says at the end what each took.
PROOF := cd tools && $(GO) run ./proof

test: need
	$(PROOF) gate

check: need
	$(PROOF) gate lint unit race

concerned:
	@scripts/need all
	$(PROOF) concerned $(SINCE)

prove:
	@scripts/need all
	$(PROOF) all $(PART)

# What the gate needs besides Go; installed with apt where that is possible.
need:
	@scripts/need

# Packages with the types of Kubernetes or the engine of Prometheus take longer to compile than all
# the rest. They are looked at by make chart, and the tools by make tools.
lint:
	@test -z "$$(gofmt -l $$(git ls-files '*.go'))" || { gofmt -d $$(git ls-files '*.go'); exit 1; }
	@$(call check,.,./...)
	@$(call check,e2e,$$($(GO) list ./... | grep -vE '/e2e/(alerts|chart)$$'))

tools:
	@$(call check,tools,./...)

# Not vetted, only because that takes long. Not cached: the chart is outside of that module.
# UPDATE=-update writes the golden files anew.
chart:
	cd e2e && $(TOOL) staticcheck ./alerts ./chart && $(GO) test -count=1 -vet=off ./alerts && $(GO) test -count=1 -vet=off ./chart $(UPDATE)

# Not cached: Go does not know that these tests read the whole tree.
mutants:
	cd tools/mutants && $(GO) test -count=1 . && $(GO) run . -run '$(MUTANTS)'

bench:
	$(GO) run ./bench $(BENCH)

fuzz:
	scripts/fuzz $(FUZZTIME)

soak:
	@cd e2e && RSHUB_E2E_RACE=1 RSHUB_SOAK=$(SOAK) RSHUB_E2E_SEED=$(SEED) CGO_ENABLED=1 $(GO) test -race -tags=pebblegozstd -count=1 -timeout 0 -v -run '^TestSoak$$' ./faults

clean:
	rm -rf bin dist
