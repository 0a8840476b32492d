// Package build returns the version of a program.
//
// The linker sets it in a release (tools/scripts/build); otherwise it comes from Go's build
// information. All programs use it for -version, User-Agent headers and metrics.
package build

import (
	"fmt"
	"regexp"
	"runtime"
	"runtime/debug"
	"strings"
)

// version is set by the linker (see tools/scripts/build) in a build without the repository's
// history, for example of an image, where the toolchain does not know the version.
var version string

// next is the version of the next release. Builds without a tag are its prereleases.
const next = "v0.1.0"

// Version returns the version of this program: v1.2.3, or v1.2.3-dev+REVISION for an untagged
// commit before that release. It ends in .dirty if the files differ from the commit. Without a
// history it has no revision.
func Version() string {
	info, _ := debug.ReadBuildInfo()
	return versionOf(version, info)
}

// Line returns the output of "rshub version": the program's name, its version, and in parentheses
// everything else that is known about the build.
func Line(program string) string {
	info, _ := debug.ReadBuildInfo()
	return line(program, version, info)
}

// pseudoVersion matches the pseudo-version that Go gives an untagged commit.
var pseudoVersion = regexp.MustCompile(`-(?:0\.)?\d{14}-([0-9a-f]{12})(\+dirty)?$`)

func versionOf(linked string, info *debug.BuildInfo) string {
	switch {
	case linked != "":
		return linked
	case info == nil || info.Main.Version == "" || info.Main.Version == "(devel)":
		return next + "-dev"
	}
	m := pseudoVersion.FindStringSubmatch(info.Main.Version)
	if m == nil {
		return info.Main.Version
	}
	return next + "-dev+" + m[1] + strings.Replace(m[2], "+", ".", 1)
}

func line(program, linked string, info *debug.BuildInfo) string {
	var known []string
	if info != nil {
		settings := map[string]string{}
		for _, s := range info.Settings {
			settings[s.Key] = s.Value
		}
		if revision := settings["vcs.revision"]; revision != "" {
			known = append(known, "revision "+revision, settings["vcs.time"])
		}
		if settings["vcs.modified"] == "true" {
			known = append(known, "modified")
		}
	}
	known = append(known, runtime.Version(), runtime.GOOS+"/"+runtime.GOARCH)
	return fmt.Sprintf("%s %s (%s)", program, versionOf(linked, info), strings.Join(known, ", "))
}
