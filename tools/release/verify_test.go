// Package release tests the artefacts of a release. tools/scripts/release runs it with DIST, the
// directory of the artefacts, PROGRAMS, the directory of the programs by platform, PLATFORMS,
// VERSION and REVISION.
package release

import (
	"debug/buildinfo"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"
)

var (
	dist     = os.Getenv("DIST")
	version  = os.Getenv("VERSION")
	number   = strings.TrimPrefix(version, "v")
	names    = []string{"rshub", "rspublish", "rsmirror"}
	document = []string{"README.md", "CHANGELOG.md", "SECURITY.md", "THIRD_PARTY.txt", "docs/operate.md", "deploy/proxy/nginx.conf", "deploy/grafana/rshub.json", "deploy/helm/rshub/files/alerts.yaml"}
)

// output returns what a command prints. It skips the test if the command is not installed.
func output(t *testing.T, name string, args ...string) string {
	t.Helper()
	if _, err := exec.LookPath(name); err != nil {
		t.Skipf("not verified: %v", err)
	}
	cmd := exec.Command(name, args...)
	cmd.Dir = dist
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s %q: %v\n%s", name, args, err, out)
	}
	return string(out)
}

// contains fails the test unless each path is a line of a listing, or the end of one.
func contains(t *testing.T, listing, prefix string, paths ...string) {
	t.Helper()
	lines := strings.Split(listing, "\n")
	for _, path := range paths {
		if !slices.ContainsFunc(lines, func(l string) bool { return strings.HasSuffix(strings.TrimSuffix(l, "/"), prefix+path) }) {
			t.Errorf("got no %s%s in\n%s", prefix, path, listing)
		}
	}
}

// eachPlatform runs a subtest per platform of the release.
func eachPlatform(t *testing.T, test func(t *testing.T, system, architecture string)) {
	if dist == "" {
		t.Skip("DIST is not set; tools/scripts/release runs this test")
	}
	for platform := range strings.FieldsSeq(os.Getenv("PLATFORMS")) {
		system, architecture, _ := strings.Cut(platform, "/")
		t.Run(system+"_"+architecture, func(t *testing.T) { test(t, system, architecture) })
	}
}

// eachProgram calls test with each program of a platform and the modules that it links.
func eachProgram(t *testing.T, system, architecture string, test func(name, file string, info *buildinfo.BuildInfo)) {
	for _, name := range names {
		file := filepath.Join(os.Getenv("PROGRAMS"), system+"_"+architecture, name)
		if system == "windows" {
			file += ".exe"
		}
		info, err := buildinfo.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		test(name, file, info)
	}
}

func TestPrograms(t *testing.T) {
	eachPlatform(t, func(t *testing.T, system, architecture string) {
		eachProgram(t, system, architecture, func(name, file string, info *buildinfo.BuildInfo) {
			got := map[string]string{}
			for _, s := range info.Settings {
				got[s.Key] = s.Value
			}
			for key, want := range map[string]string{"GOOS": system, "GOARCH": architecture, "CGO_ENABLED": "0", "-trimpath": "true", "vcs.revision": os.Getenv("REVISION"), "vcs.modified": "false"} {
				if got[key] != want {
					t.Errorf("%s: got %s=%q, want %q", name, key, got[key], want)
				}
			}
			if system == runtime.GOOS && architecture == runtime.GOARCH {
				if got, want := output(t, file, "-version"), name+" "+version+" (revision "+os.Getenv("REVISION"); !strings.HasPrefix(got, want) {
					t.Errorf("%s -version = %s, want %s", name, got, want)
				}
			}
		})
	})
}

func TestArchives(t *testing.T) {
	eachPlatform(t, func(t *testing.T, system, architecture string) {
		name := "rshub_" + number + "_" + system + "_" + architecture
		if system == "windows" {
			contains(t, output(t, "unzip", "-Z1", name+".zip"), name+"/", append(document, "LICENSE", "rshub.exe", "rspublish.exe", "rsmirror.exe")...)
			return
		}
		contains(t, output(t, "tar", "-tzf", name+".tar.gz"), name+"/", append(document, "LICENSE", "rshub", "rspublish", "rsmirror")...)
	})
}

// TestBills checks that the bill of materials and the licences have each module that is linked.
func TestBills(t *testing.T) {
	eachPlatform(t, func(t *testing.T, system, architecture string) {
		licences, err := os.ReadFile(filepath.Join(os.Getenv("PROGRAMS"), system+"_"+architecture, "THIRD_PARTY.txt"))
		if err != nil {
			t.Fatal(err)
		}
		eachProgram(t, system, architecture, func(name, _ string, info *buildinfo.BuildInfo) {
			text, err := os.ReadFile(filepath.Join(dist, name+"_"+number+"_"+system+"_"+architecture+".cdx.json"))
			if err != nil {
				t.Fatal(err)
			}
			var bill struct {
				Metadata   struct{ Component struct{ Version string } }
				Components []struct{ Name, Version string }
			}
			if err := json.Unmarshal(text, &bill); err != nil {
				t.Fatal(err)
			}
			if got := bill.Metadata.Component.Version; got != version {
				t.Errorf("%s: bill has version %s, want %s", name, got, version)
			}
			for _, m := range info.Deps {
				if !slices.Contains(bill.Components, struct{ Name, Version string }{m.Path, m.Version}) {
					t.Errorf("%s: bill lacks %s %s", name, m.Path, m.Version)
				}
				if !strings.Contains(string(licences), "======== "+m.Path+"/") {
					t.Errorf("%s: THIRD_PARTY.txt lacks %s", name, m.Path)
				}
			}
		})
	})
}

// TestPackages checks the contents and configuration files of the deb and rpm.
func TestPackages(t *testing.T) {
	installed := []string{
		"/usr/bin/rshub", "/usr/bin/rspublish", "/usr/bin/rsmirror", "/usr/lib/systemd/system/rshub.service",
		"/usr/lib/systemd/system/rsmirror@.service", "/usr/lib/systemd/system/rspublish-watch@.service",
		"/etc/rshub/rshub.env", "/etc/rshub/tokens", "/var/lib/rshub", "/usr/share/doc/rshub/copyright",
	}
	eachPlatform(t, func(t *testing.T, system, architecture string) {
		if system != "linux" {
			t.Skip("packages are for Linux")
		}
		for kind, pattern := range map[string]string{"deb": "*_" + architecture + ".deb", "rpm": "*." + map[string]string{"amd64": "x86_64", "arm64": "aarch64"}[architecture] + ".rpm"} {
			t.Run(kind, func(t *testing.T) {
				files, err := filepath.Glob(filepath.Join(dist, pattern))
				if err != nil || len(files) != 1 {
					t.Fatalf("%s: got %v, %v, want one file", pattern, files, err)
				}
				var listing, configuration string
				if kind == "deb" {
					listing, configuration = output(t, "dpkg-deb", "-c", files[0]), output(t, "dpkg-deb", "-I", files[0], "conffiles")
				} else {
					listing, configuration = output(t, "rpm", "-qlvp", files[0]), output(t, "rpm", "-qcp", files[0])
				}
				contains(t, listing, "", installed...)
				contains(t, listing, "/usr/share/doc/rshub/", document...)
				contains(t, configuration, "", "/etc/rshub/rshub.env")
				if strings.Contains(listing, "drw-") {
					t.Errorf("a directory cannot be entered:\n%s", listing)
				}
			})
		}
	})
}

func TestChecksums(t *testing.T) {
	if dist == "" {
		t.Skip("DIST is not set")
	}
	output(t, "sha256sum", "-c", "--quiet", "--strict", "SHA256SUMS")
	entries, err := os.ReadDir(dist)
	if err != nil {
		t.Fatal(err)
	}
	sums, err := os.ReadFile(filepath.Join(dist, "SHA256SUMS"))
	if got, want := strings.Count(string(sums), "\n"), len(entries)-1; err != nil || got != want {
		t.Errorf("SHA256SUMS has %d lines, %v, want %d", got, err, want)
	}
	contains(t, output(t, "tar", "-tzf", "rshub-"+number+".tgz"), "rshub/", "Chart.yaml", "values.yaml")
}

// TestWheel imports the Python client from the wheel.
func TestWheel(t *testing.T) {
	wheels, err := filepath.Glob(filepath.Join(dist, "rshub-*.whl"))
	if dist == "" || err != nil {
		t.Skip("DIST is not set")
	}
	if len(wheels) != 1 {
		t.Fatalf("got the wheels %v, want one", wheels)
	}
	got := output(t, "python3", "-c", `import sys; sys.path.insert(0, sys.argv[1]); import rshub; print(rshub.__file__)`, wheels[0])
	if !strings.HasPrefix(got, wheels[0]) {
		t.Errorf("rshub is imported from %s, want %s", got, wheels[0])
	}
}

// TestVersion checks that the files that name a version name this one, if it is a release.
func TestVersion(t *testing.T) {
	if !regexp.MustCompile(`^\d+\.\d+\.\d+$`).MatchString(number) {
		t.Skipf("%q is not a release", version)
	}
	for file, line := range map[string]string{
		"CHANGELOG.md": "## " + number + " (2", "internal/build/build.go": `const next = "` + version + `"`, "clients/python/pyproject.toml": `version = "` + number + `"`,
		"deploy/helm/rshub/Chart.yaml": "appVersion: " + number,
	} {
		if text, err := os.ReadFile(filepath.Join("../..", file)); err != nil || !strings.Contains(string(text), "\n"+line) {
			t.Errorf("%s: got no line %q, %v", file, line, err)
		}
	}
}

// TestUnit has systemd read the unit. It finds an exposure of 13 of 100, mostly the network.
func TestUnit(t *testing.T) {
	text, err := os.ReadFile("../../deploy/systemd/rshub.service")
	if err != nil || dist == "" {
		t.Skipf("DIST is not set: %v", err)
	}
	unit := filepath.Join(t.TempDir(), "rshub.service")
	program := filepath.Join(os.Getenv("PROGRAMS"), runtime.GOOS+"_"+runtime.GOARCH, "rshub")
	if err := os.WriteFile(unit, []byte(strings.ReplaceAll(string(text), "/usr/bin/rshub", program)), 0o600); err != nil {
		t.Fatal(err)
	}
	output(t, "systemd-analyze", "verify", "--man=no", unit)
	output(t, "systemd-analyze", "security", "--offline=yes", "--threshold=15", unit)
}
