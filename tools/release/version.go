package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

var (
	// released is the heading of a release in CHANGELOG.md.
	released = regexp.MustCompile(`(?m)^## (\d+\.\d+\.\d+)\b.*$`)
	// waiting is the section of what is not released, up to the next heading. It has
	// changes if it has a list.
	waiting = regexp.MustCompile(`(?ms)^## Unreleased\n(.*?)(?:^## |\z)`)
	// a proper version is one without words behind it.
	proper = regexp.MustCompile(`^v\d+\.\d+\.\d+$`)
	// next is the release that builds without a tag come before.
	next = regexp.MustCompile(`const next = "(v[^"]+)"`)
)

// chooseVersion chooses the version of the commit, unless it is given. If the newest
// section of CHANGELOG.md is a release that has no tag yet, this is that release.
// Otherwise it is the commit's tag, or what the programs say of a commit that has none.
func (r *release) chooseVersion(ctx context.Context) error {
	if r.version != "" {
		return nil
	}
	text, err := os.ReadFile(filepath.Join(r.root, "CHANGELOG.md"))
	if err != nil {
		return err
	}
	if newest := newestRelease(string(text)); newest != "" {
		tagged, err := r.output(ctx, nil, "git", "tag", "--list", newest)
		if err != nil {
			return err
		}
		if tagged == "" {
			r.version = newest
			fmt.Printf("   %s, which CHANGELOG.md begins with, has no tag yet: git tag %s\n", newest, newest)
			return nil
		}
	}
	tags, err := r.output(ctx, nil, "git", "tag", "--points-at", "HEAD", "--list", "v*")
	if err != nil {
		return err
	}
	if r.version, _, _ = strings.Cut(tags, "\n"); r.version != "" {
		return nil
	}
	if text, err = os.ReadFile(filepath.Join(r.root, buildFile)); err != nil {
		return err
	}
	m := next.FindSubmatch(text)
	if m == nil {
		return fmt.Errorf("%s does not name the next release", buildFile)
	}
	r.version = string(m[1]) + "-dev+" + r.revision[:12]
	return nil
}

// buildFile says what the programs say of their version.
const buildFile = "internal/build/build.go"

// newestRelease returns the release that a changelog begins with, such as v1.2.3; empty
// if it begins with changes that are not released.
func newestRelease(changelog string) string {
	if m := waiting.FindStringSubmatch(changelog); m != nil && strings.Contains(m[1], "\n- ") {
		return ""
	}
	if m := released.FindStringSubmatch(changelog); m != nil {
		return "v" + m[1]
	}
	return ""
}

// verifyVersion looks whether the files that name a version name this one. Versions of
// commits between releases are in none.
func (r *release) verifyVersion(context.Context) error {
	if !proper.MatchString(r.version) {
		return nil
	}
	number := regexp.QuoteMeta(r.number())
	for _, names := range []struct{ file, pattern string }{
		{"CHANGELOG.md", `(?m)^## ` + number + `\b`},
		{buildFile, `const next = "v` + number + `"`},
		{chartDir + "/Chart.yaml", `(?m)^version: ` + number + `$`},
		{chartDir + "/Chart.yaml", `(?m)^appVersion: ` + number + `$`},
		{pythonDir + "/pyproject.toml", `(?m)^version = "` + number + `"$`},
	} {
		text, err := os.ReadFile(filepath.Join(r.root, names.file))
		if err != nil {
			return err
		}
		if !regexp.MustCompile(names.pattern).Match(text) {
			return fmt.Errorf("%s does not name the version %s", names.file, r.number())
		}
	}
	return nil
}
