package directory

import (
	"fmt"
	"path"
	"slices"
	"strings"
)

// An exclusion has the patterns of the paths that are left out.
type exclusion struct {
	names []string // patterns of names
	paths []string // patterns of whole paths
}

func newExclusion(o Options) (exclusion, error) {
	var x exclusion
	if !o.IncludeTemporary {
		x.names = slices.Clone(TemporaryNames)
	}
	for _, pattern := range o.Exclude {
		if _, err := path.Match(pattern, ""); err != nil || pattern == "" {
			return x, fmt.Errorf("invalid pattern %q: want one such as *.tmp or drafts/*.xml", pattern)
		}
		if p := strings.Trim(pattern, "/"); strings.Contains(pattern, "/") {
			x.paths = append(x.paths, p)
		} else {
			x.names = append(x.names, p)
		}
	}
	return x, nil
}

// excludes reports whether a path is excluded, if its directory is not.
func (x *exclusion) excludes(p string) bool {
	name := path.Base(p)
	for _, pattern := range x.names {
		if matches(pattern, name) {
			return true
		}
	}
	for _, pattern := range x.paths {
		if matches(pattern, p) {
			return true
		}
	}
	return false
}

// matches is path.Match, but faster for most names: it compares the first and the last byte first,
// because every name is compared with every pattern.
func matches(pattern, name string) bool {
	differ := func(p, n byte) bool { return p != n && strings.IndexByte(`*?[]\`, p) < 0 }
	if pattern != "" && name != "" && (differ(pattern[0], name[0]) || differ(pattern[len(pattern)-1], name[len(name)-1])) {
		return false
	}
	ok, _ := path.Match(pattern, name)
	return ok
}

// excludesPath reports whether a path or a directory above it is excluded.
func (x *exclusion) excludesPath(p string) bool {
	for i := range len(p) {
		if p[i] == '/' && x.excludes(p[:i]) {
			return true
		}
	}
	return x.excludes(p)
}
