package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// programs are what is released, and platforms what it is released for.
var (
	programs  = []string{"rshub", "rspublish", "rsmirror"}
	platforms = []string{"linux/amd64", "linux/arm64", "darwin/amd64", "darwin/arm64", "windows/amd64", "windows/arm64"}
)

// goItself stands for the standard library and the runtime.
const goItself = "Go"

// A module is linked into programs.
type module struct {
	path, version string
	dir           string
	packages      map[string]bool // directories of those that are linked
	programs      map[string]bool
}

// linked returns the modules that the programs link on any platform, by path. The first is
// Go itself.
func linked(ctx context.Context, root string) ([]*module, error) {
	all := map[string]*module{}
	for _, platform := range platforms {
		if err := list(ctx, root, platform, all); err != nil {
			return nil, err
		}
	}
	var sorted []*module
	for _, path := range slices.Sorted(maps.Keys(all)) {
		sorted = append(sorted, all[path])
	}
	return sorted, nil
}

// list adds what the programs link on a platform.
func list(ctx context.Context, root, platform string, all map[string]*module) error {
	system, architecture, _ := strings.Cut(platform, "/")
	args := []string{"list", "-deps", "-json=ImportPath,Name,Dir,Standard,Module,Deps"}
	for _, program := range programs {
		args = append(args, "./cmd/"+program)
	}
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = root
	cmd.Env = append(os.Environ(), "GOOS="+system, "GOARCH="+architecture, "CGO_ENABLED=0")
	out, err := cmd.Output()
	if err != nil {
		if exit, ok := errors.AsType[*exec.ExitError](err); ok {
			err = fmt.Errorf("%w\n%s", err, exit.Stderr)
		}
		return fmt.Errorf("list what is linked on %s: %w", platform, err)
	}
	of := map[string]*module{} // by package
	for d := json.NewDecoder(bytes.NewReader(out)); ; {
		var p struct {
			ImportPath, Name, Dir string
			Standard              bool
			Module                *struct {
				Path, Version, Dir string
				Main               bool
			}
			Deps []string // comes after those
		}
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return fmt.Errorf("read what is linked on %s: %w", platform, err)
		}
		path, version, dir := goItself, "", goRoot(p.Dir)
		switch {
		case p.Standard && dir == "": // a pseudo package
			continue
		case p.Standard:
		case p.Module.Main:
			for _, dep := range p.Deps {
				if m := of[dep]; m != nil && p.Name == "main" {
					m.programs[filepath.Base(p.ImportPath)] = true
				}
			}
			continue
		default:
			path, version, dir = p.Module.Path, p.Module.Version, p.Module.Dir
		}
		m := all[path]
		if m == nil {
			m = &module{path: path, version: version, dir: dir, packages: map[string]bool{}, programs: map[string]bool{}}
			all[path] = m
		}
		m.packages[p.Dir], of[p.ImportPath] = true, m
	}
}

// goRoot returns the directory of Go by that of a package of the standard library. It is
// empty for a pseudo package, which has none.
func goRoot(dir string) string {
	before, _, ok := strings.Cut(filepath.ToSlash(dir), "/src/")
	if !ok {
		return ""
	}
	return filepath.FromSlash(before)
}

// A text is a file of a module that says what its licence is.
type text struct {
	name    string // in the module
	content string
	patents bool // it grants more than the licence, and is none itself
	notice  bool
}

var textFile = regexp.MustCompile(`(?i)^(licen[cs]e|copying|notice|patents)(\.(txt|md))?$`)

// texts returns the licences of a module: those beside the packages that are linked, and
// those in the directories above these.
func (m *module) texts() (all []text, err error) {
	dirs := map[string]bool{m.dir: true}
	if m.path != goItself {
		for dir := range m.packages {
			for ; dir != m.dir && strings.HasPrefix(dir, m.dir); dir = filepath.Dir(dir) {
				dirs[dir] = true
			}
		}
	}
	for _, dir := range slices.Sorted(maps.Keys(dirs)) {
		entries, err := os.ReadDir(dir)
		if err != nil {
			return nil, err
		}
		for _, e := range entries {
			if e.IsDir() || !textFile.MatchString(e.Name()) {
				continue
			}
			content, err := os.ReadFile(filepath.Join(dir, e.Name()))
			if err != nil {
				return nil, err
			}
			name, err := filepath.Rel(m.dir, filepath.Join(dir, e.Name()))
			if err != nil {
				return nil, err
			}
			kind := strings.ToLower(e.Name())
			all = append(all, text{
				name: filepath.ToSlash(name), content: strings.ReplaceAll(string(content), "\r\n", "\n"),
				patents: strings.HasPrefix(kind, "patents"), notice: strings.HasPrefix(kind, "notice"),
			})
		}
	}
	return all, nil
}
