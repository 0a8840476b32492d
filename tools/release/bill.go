package main

import (
	"context"
	"debug/buildinfo"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"io"
	"path/filepath"
	"runtime/debug"
	"strings"
	"time"

	"github.com/CycloneDX/cyclonedx-go"
)

func (r *release) billName(program string, p platform) string {
	return program + "_" + r.number() + "_" + p.String() + ".cdx.json"
}

// makeBills makes a bill of materials for each program, of what Go wrote into
// it: the modules that it was built from, and the Go that built it.
func (r *release) makeBills(context.Context) error {
	for _, p := range r.platforms {
		for _, name := range []string{"rshub", "rspublish", "rsmirror"} {
			info, err := buildinfo.ReadFile(filepath.Join(r.work, p.String(), p.program(name)))
			if err != nil {
				return err
			}
			bill, err := r.bill(name, p, info)
			if err != nil {
				return err
			}
			write := func(w io.Writer) error {
				return cyclonedx.NewBOMEncoder(w, cyclonedx.BOMFileFormatJSON).SetPretty(true).EncodeVersion(bill, cyclonedx.SpecVersion1_6)
			}
			if err := writeFile(filepath.Join(r.dist, r.billName(name, p)), write); err != nil {
				return err
			}
		}
	}
	return nil
}

func (r *release) bill(name string, p platform, info *debug.BuildInfo) (*cyclonedx.BOM, error) {
	b := cyclonedx.NewBOM() // without a serial number: the same program has the same bill
	program := packageOf(info.Main.Path, r.version, cyclonedx.ComponentTypeApplication)
	program.BOMRef = program.PackageURL + "?goarch=" + p.architecture + "&goos=" + p.system + "&type=module#cmd/" + name
	program.PackageURL = program.BOMRef
	program.Licenses = &cyclonedx.Licenses{{License: &cyclonedx.License{ID: "Apache-2.0"}}}
	b.Metadata = &cyclonedx.Metadata{Timestamp: r.when.Format(time.RFC3339), Component: &program}
	parts := []cyclonedx.Component{packageOf("std", strings.TrimPrefix(info.GoVersion, "go"), cyclonedx.ComponentTypeLibrary)}
	for _, module := range info.Deps {
		if module.Replace != nil {
			return nil, fmt.Errorf("%s is replaced by %s", module.Path, module.Replace.Path)
		}
		part := packageOf(module.Path, module.Version, cyclonedx.ComponentTypeLibrary)
		sum, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(module.Sum, "h1:"))
		if err != nil {
			return nil, fmt.Errorf("the checksum of %s: %w", module.Path, err)
		}
		part.Hashes = &[]cyclonedx.Hash{{Algorithm: cyclonedx.HashAlgoSHA256, Value: hex.EncodeToString(sum)}} // of go.sum
		parts = append(parts, part)
	}
	refs := make([]string, len(parts))
	for i, part := range parts {
		refs[i] = part.BOMRef
	}
	b.Components = &parts
	b.Dependencies = &[]cyclonedx.Dependency{{Ref: program.BOMRef, Dependencies: &refs}}
	return b, nil
}

// packageOf is a Go module by its package URL (github.com/package-url).
func packageOf(path, version string, kind cyclonedx.ComponentType) cyclonedx.Component {
	url := "pkg:golang/" + path + "@" + strings.ReplaceAll(version, "+", "%2B")
	return cyclonedx.Component{BOMRef: url, Type: kind, Name: path, Version: version, PackageURL: url}
}
