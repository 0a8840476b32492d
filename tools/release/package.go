package main

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/goreleaser/nfpm/v2"
	"github.com/goreleaser/nfpm/v2/deb"
	"github.com/goreleaser/nfpm/v2/files"
	"github.com/goreleaser/nfpm/v2/rpm"
)

// makeImage makes the container image for the Linux platforms.
func (r *release) makeImage(ctx context.Context) error {
	program := filepath.Join(r.work, "image")
	if _, err := r.output(ctx, nil, "go", "build", "-C", "tools/image", "-o", program, "."); err != nil {
		return err
	}
	var platforms []string
	for _, p := range r.linux() {
		platforms = append(platforms, p.system+"/"+p.architecture)
	}
	digest, err := r.output(ctx, nil, program, "-programs", r.work, "-platforms", strings.Join(platforms, ","), "-version", r.number(), "-tag", strings.ReplaceAll(r.number(), "+", "_"), "-revision", r.revision,
		"-created", r.when.Format(time.RFC3339), "-o", filepath.Join(r.dist, "rshub_"+r.number()+"_image.tar"))
	fmt.Println("  ", digest)
	return err
}

// makePackages makes the deb and the rpm for the Linux platforms.
func (r *release) makePackages(context.Context) error {
	documents, err := r.documents()
	if err != nil {
		return err
	}
	for _, p := range r.linux() {
		variables := map[string]string{"ARCH": p.architecture, "VERSION": r.number(), "PROGRAMS": filepath.Join(r.work, p.String())}
		config, err := nfpm.ParseFileWithEnvMapping("deploy/release/nfpm.yaml", func(name string) string { return variables[name] })
		if err != nil {
			return err
		}
		for _, name := range documents {
			config.Contents = append(config.Contents, &files.Content{
				Source: name, Destination: path.Join("/usr/share/doc/rshub", name), FileInfo: &files.ContentFileInfo{Mode: 0o644},
			})
		}
		for format, packager := range map[string]nfpm.Packager{"deb": deb.Default, "rpm": rpm.DefaultRPM} {
			info, err := config.Get(format)
			if err != nil {
				return err
			}
			info.MTime = r.when
			info = nfpm.WithDefaults(info)
			name := packager.ConventionalFileName(info)
			if err := writeFile(filepath.Join(r.dist, name), func(w io.Writer) error { return packager.Package(info, w) }); err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
		}
	}
	return nil
}

// chartDir is where the Helm chart is.
const chartDir = "deploy/helm/rshub"

var chartVersion = regexp.MustCompile(`(?m)^(version|appVersion):.*$`)

// makeChart packs the Helm chart as helm package does, with this release's
// version.
func (r *release) makeChart(context.Context) error {
	var members []member
	root := os.DirFS(filepath.Join(r.root, chartDir))
	err := fs.WalkDir(root, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		content, err := fs.ReadFile(root, name)
		if name == "Chart.yaml" {
			content = chartVersion.ReplaceAll(content, []byte(`$1: "`+r.number()+`"`))
		}
		members = append(members, member{name: path.Join("rshub", name), content: content})
		return err
	})
	if errors.Is(err, fs.ErrNotExist) {
		fmt.Println("   there is none")
		return nil
	}
	if err != nil {
		return err
	}
	return writeFile(filepath.Join(r.dist, "rshub-"+r.number()+".tgz"), func(w io.Writer) error { return r.writeTar(w, members) })
}

// checksums is the file with the SHA-256 of every other one, for sha256sum -c.
const checksums = "SHA256SUMS"

func (r *release) makeChecksums(context.Context) error {
	entries, err := os.ReadDir(r.dist)
	if err != nil {
		return err
	}
	var lines strings.Builder
	for _, e := range entries {
		content, err := os.ReadFile(filepath.Join(r.dist, e.Name()))
		if err != nil {
			return err
		}
		fmt.Fprintf(&lines, "%x  %s\n", sha256.Sum256(content), e.Name())
	}
	return os.WriteFile(filepath.Join(r.dist, checksums), []byte(lines.String()), 0o644)
}
