package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"path"
	"slices"
	"strings"
)

// concerned returns the parts of prove that the changes since a commit, and what is not
// committed, may break. Parts that test packages are told by what these packages and their tests
// import; others by their list of folders. What nothing knows concerns all parts.
func (t *tree) concerned(ctx context.Context, since string) ([]part, error) {
	changed, err := git(ctx, t.root, "diff", "--name-only", since)
	if err != nil {
		return nil, err
	}
	others, err := git(ctx, t.root, "ls-files", "--others", "--exclude-standard")
	if err != nil {
		return nil, err
	}
	files := strings.Fields(changed + "\n" + others)
	importers, err := t.importers(ctx)
	if err != nil {
		return nil, err
	}
	var parts []part
	for _, p := range prove {
		if slices.ContainsFunc(files, func(file string) bool { return p.concernedBy(file, importers) }) {
			parts = append(parts, p)
		}
	}
	return parts, nil
}

// everything are the files that concern every part.
var everything = []string{"go.mod", "go.sum", "Makefile", "e2e/go.mod", "e2e/go.sum", "tools/go.mod", "tools/go.sum", "tools/proof"}

// concernedBy reports whether the change of a file may break the part. importers has for each
// folder of the product the folders whose packages or tests import it, and itself.
func (p *part) concernedBy(file string, importers map[string][]string) bool {
	if below(file, everything...) {
		return true
	}
	folders, known := importers[path.Dir(file)]
	if !known {
		// A folder without Go, such as testdata, belongs to the nearest that has some.
		for dir := path.Dir(file); dir != "." && !known; dir = path.Dir(dir) {
			folders, known = importers[dir]
		}
	}
	for _, folder := range append(folders, file) {
		if below(folder, p.concerns...) {
			return true
		}
		for _, s := range p.steps {
			if s.dir == "" && s.command == "" && matches(folder, s.tests) && !matches(folder, s.without) && known {
				return true
			}
		}
	}
	return !known && !slices.ContainsFunc(prove, func(q part) bool { return below(file, q.concerns...) }) && !strings.HasSuffix(file, ".md")
}

// below reports whether a file is one of the folders, or in one. A folder may be a pattern of
// packages.
func below(file string, folders ...string) bool {
	return slices.ContainsFunc(folders, func(f string) bool {
		f = strings.TrimSuffix(strings.TrimPrefix(f, "./"), "/...")
		return file == f || strings.HasPrefix(file, f+"/")
	})
}

// matches reports whether a folder is matched by a pattern of packages.
func matches(folder string, patterns []string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool {
		switch rest, all := strings.CutSuffix(strings.TrimPrefix(p, "./"), "..."); {
		case !all:
			return folder == rest
		case rest == "":
			return true
		default:
			return below(folder, strings.TrimSuffix(rest, "/"))
		}
	})
}

// importers returns for each folder of the product the folders that have packages, or tests, that
// import it directly or by way of others, and itself.
func (t *tree) importers(ctx context.Context) (map[string][]string, error) {
	cmd := exec.CommandContext(ctx, "go", "list", "-deps", "-test", "-json=ImportPath,Deps,ForTest,Module", "./...")
	cmd.Dir = t.root
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	folder := func(importPath string) (string, bool) {
		importPath, _, _ = strings.Cut(importPath, " ")
		importPath = strings.TrimSuffix(strings.TrimSuffix(importPath, ".test"), "_test")
		if importPath == module {
			return ".", true
		}
		return strings.CutPrefix(importPath, module+"/")
	}
	sets := map[string]map[string]bool{}
	for d := json.NewDecoder(out); ; {
		var p struct {
			ImportPath string
			Deps       []string
		}
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return nil, fmt.Errorf("read what go list printed: %w", err)
		}
		importer, own := folder(p.ImportPath)
		if !own {
			continue
		}
		for _, dep := range append(p.Deps, p.ImportPath) {
			if f, own := folder(dep); own {
				if sets[f] == nil {
					sets[f] = map[string]bool{}
				}
				sets[f][importer] = true
			}
		}
	}
	if err := cmd.Wait(); err != nil {
		return nil, fmt.Errorf("go list: %w", err)
	}
	importers := map[string][]string{}
	for f, set := range sets {
		for importer := range set {
			importers[f] = append(importers[f], importer)
		}
	}
	return importers, nil
}
