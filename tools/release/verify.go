package main

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"context"
	"debug/buildinfo"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
)

// verify looks at what was made with others' eyes, where those are installed,
// and says what it could not look at.
func (r *release) verify(ctx context.Context) error {
	for _, check := range []struct {
		what, program string // that it needs; empty: none
		do            func(context.Context) error
	}{
		{"programs", "", r.verifyPrograms}, {"archives", "", r.verifyArchives}, {"bills of materials", "", r.verifyBills},
		{"checksums", "sha256sum", r.verifyChecksums}, {"deb", "dpkg-deb", r.verifyDebs}, {"rpm", "rpm", r.verifyRPMs},
		{"wheel", "python3", r.verifyWheel}, {"systemd unit", "systemd-analyze", r.verifyUnit},
	} {
		if _, err := exec.LookPath(check.program); check.program != "" && err != nil {
			fmt.Printf("   %s: NOT VERIFIED, %s is not installed\n", check.what, check.program)
			continue
		}
		if err := check.do(ctx); err != nil {
			return fmt.Errorf("%s: %w", check.what, err)
		}
		fmt.Printf("   %s: ok\n", check.what)
	}
	return nil
}

// verifyPrograms asks the programs what they were built for, and runs those of
// this platform.
func (r *release) verifyPrograms(ctx context.Context) error {
	for _, p := range r.platforms {
		for _, name := range []string{"rshub", "rspublish", "rsmirror"} {
			file := filepath.Join(r.work, p.String(), p.program(name))
			info, err := buildinfo.ReadFile(file)
			if err != nil {
				return err
			}
			settings := map[string]string{}
			for _, s := range info.Settings {
				settings[s.Key] = s.Value
			}
			for key, want := range map[string]string{"GOOS": p.system, "GOARCH": p.architecture, "CGO_ENABLED": "0", "-trimpath": "true", "vcs.revision": r.revision, "vcs.modified": "false"} {
				if settings[key] != want {
					return fmt.Errorf("%s of %s has %s=%q, not %q", name, p, key, settings[key], want)
				}
			}
			if p.system != runtime.GOOS || p.architecture != runtime.GOARCH {
				continue
			}
			said, err := r.output(ctx, nil, file, "-version")
			if err != nil {
				return err
			}
			fmt.Println("  ", said)
			if !strings.HasPrefix(said, name+" "+r.version+" (revision "+r.revision) {
				return fmt.Errorf("that is not %s", r.version)
			}
		}
	}
	return nil
}

// verifyArchives reads every archive to its end.
func (r *release) verifyArchives(context.Context) error {
	for _, p := range r.platforms {
		dir := r.archiveName(p)
		list, ending := tarNames, ".tar.gz"
		if p.system == "windows" {
			list, ending = zipNames, ".zip"
		}
		names, err := list(filepath.Join(r.dist, dir+ending))
		if err != nil {
			return fmt.Errorf("%s: %w", dir, err)
		}
		for _, name := range []string{p.program("rshub"), p.program("rspublish"), p.program("rsmirror"), "README.md", "LICENSE", "THIRD_PARTY.md", "docs/operate.md", "deploy/proxy/nginx.conf", "deploy/grafana/rshub.json"} {
			if !slices.Contains(names, path.Join(dir, name)) {
				return fmt.Errorf("%s has no %s, only %v", dir, name, names)
			}
		}
	}
	if _, err := os.Stat(filepath.Join(r.root, chartDir)); err != nil {
		return nil // there is no chart
	}
	names, err := tarNames(filepath.Join(r.dist, "rshub-"+r.number()+".tgz"))
	if err == nil && !slices.Contains(names, "rshub/Chart.yaml") {
		err = fmt.Errorf("the chart has only %v", names)
	}
	return err
}

func tarNames(file string) (names []string, err error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		return nil, err
	}
	t := tar.NewReader(z)
	for {
		h, err := t.Next()
		if errors.Is(err, io.EOF) {
			return names, nil
		}
		if err != nil {
			return nil, err
		}
		if _, err := io.Copy(io.Discard, t); err != nil {
			return nil, err
		}
		names = append(names, h.Name)
	}
}

func zipNames(file string) (names []string, err error) {
	z, err := zip.OpenReader(file)
	if err != nil {
		return nil, err
	}
	defer z.Close()
	for _, m := range z.File {
		content, err := m.Open()
		if err != nil {
			return nil, err
		}
		if _, err := io.Copy(io.Discard, content); err != nil { // the end says whether its checksum is right
			return nil, err
		}
		names = append(names, m.Name)
	}
	return names, nil
}

// verifyBills compares the bills of materials, and the document with the licences, with
// the modules in the programs.
func (r *release) verifyBills(context.Context) error {
	licences, err := os.ReadFile(filepath.Join(r.root, "THIRD_PARTY.md"))
	if err != nil {
		return err
	}
	for _, p := range r.platforms {
		for _, name := range []string{"rshub", "rspublish", "rsmirror"} {
			text, err := os.ReadFile(filepath.Join(r.dist, r.billName(name, p)))
			if err != nil {
				return err
			}
			var bill struct {
				Components []struct{ Name, Version string }
			}
			if err := json.Unmarshal(text, &bill); err != nil {
				return err
			}
			info, err := buildinfo.ReadFile(filepath.Join(r.work, p.String(), p.program(name)))
			if err != nil {
				return err
			}
			listed := map[string]bool{}
			for _, c := range bill.Components {
				listed[c.Name+"@"+c.Version] = true
			}
			for _, module := range info.Deps {
				if !listed[module.Path+"@"+module.Version] {
					return fmt.Errorf("that of %s for %s lacks %s %s", name, p, module.Path, module.Version)
				}
				if !bytes.Contains(licences, []byte("| "+module.Path+" | "+module.Version+" | ")) {
					return fmt.Errorf("THIRD_PARTY.md lacks %s %s, which %s for %s links", module.Path, module.Version, name, p)
				}
			}
		}
	}
	return nil
}

func (r *release) verifyChecksums(ctx context.Context) error {
	_, err := r.output(ctx, nil, "sh", "-c", `cd "$1" && sha256sum -c --quiet --strict "$2"`, "-", r.dist, checksums)
	return err
}

// installed is what both packages install.
var installed = []string{
	"/usr/bin/rshub", "/usr/bin/rspublish", "/usr/bin/rsmirror", "/usr/lib/systemd/system/rshub.service",
	"/usr/lib/systemd/system/rsmirror@.service", "/usr/lib/systemd/system/rspublish-watch@.service",
	"/etc/rshub/rshub.env", "/etc/rshub/tokens", "/var/lib/rshub", "/usr/share/doc/rshub/copyright", "/usr/share/doc/rshub/THIRD_PARTY.md",
	"/usr/share/doc/rshub/docs/operate.md", "/usr/share/doc/rshub/deploy/proxy/nginx.conf", "/usr/share/doc/rshub/deploy/grafana/rshub.json",
}

func (r *release) verifyDebs(ctx context.Context) error {
	for _, p := range r.linux() {
		architecture := p.architecture
		file, err := r.one("*_" + architecture + ".deb")
		if err != nil {
			return err
		}
		info, err := r.output(ctx, nil, "dpkg-deb", "-f", file, "Package", "Architecture")
		if err != nil {
			return err
		}
		if info != "Package: rshub\nArchitecture: "+architecture {
			return fmt.Errorf("%s says %q", file, info)
		}
		list, err := r.output(ctx, nil, "dpkg-deb", "-c", file)
		if err != nil {
			return err
		}
		if err := holds(file, list, " ."); err != nil {
			return err
		}
		conffiles, err := r.output(ctx, nil, "dpkg-deb", "-I", file, "conffiles")
		if err != nil {
			return err
		}
		if !strings.Contains(conffiles, "/etc/rshub/rshub.env\n") {
			return fmt.Errorf("%s has the conffiles %q", file, conffiles)
		}
	}
	return nil
}

func (r *release) verifyRPMs(ctx context.Context) error {
	names := map[string]string{"amd64": "x86_64", "arm64": "aarch64"}
	for _, p := range r.linux() {
		file, err := r.one("*." + names[p.architecture] + ".rpm")
		if err != nil {
			return err
		}
		list, err := r.output(ctx, nil, "rpm", "-qlvp", file)
		if err != nil {
			return err
		}
		if err := holds(file, list, " "); err != nil {
			return err
		}
		config, err := r.output(ctx, nil, "rpm", "-qcp", file)
		if err != nil {
			return err
		}
		if !strings.Contains(config, "/etc/rshub/rshub.env") {
			return fmt.Errorf("%s has the configuration files %q", file, config)
		}
	}
	return nil
}

// one returns the one file of dist that a pattern matches.
func (r *release) one(pattern string) (string, error) {
	files, err := filepath.Glob(filepath.Join(r.dist, pattern))
	if err == nil && len(files) != 1 {
		err = fmt.Errorf("%s is %v", pattern, files)
	}
	if err != nil {
		return "", err
	}
	return files[0], nil
}

// holds says whether a listing, in which before stands before a path, has what
// is installed, and directories that can be entered.
func holds(file, list, before string) error {
	for line := range strings.Lines(list) {
		if strings.HasPrefix(line, "drw-") {
			return fmt.Errorf("%s has a directory that nobody may enter: %s", file, line)
		}
	}
	for _, name := range installed {
		if !slices.ContainsFunc(strings.Split(list, "\n"), func(line string) bool { return strings.HasSuffix(strings.TrimSuffix(line, "/"), before+name) }) {
			return fmt.Errorf("%s does not hold %s, only\n%s", file, name, list)
		}
	}
	return nil
}

// maxExposure is the most that systemd-analyze security may find in the unit: it
// was 13 when this was written, of 100; what is left is mostly the network.
const maxExposure = "15"

// verifyUnit has systemd read the unit, with the program where it is now.
func (r *release) verifyUnit(ctx context.Context) error {
	text, err := os.ReadFile(filepath.Join(r.root, "deploy/systemd/rshub.service"))
	if err != nil {
		return err
	}
	program := filepath.Join(r.work, r.platforms[0].String(), "rshub")
	unit := filepath.Join(r.work, "rshub.service")
	if err := os.WriteFile(unit, bytes.ReplaceAll(text, []byte("/usr/bin/rshub"), []byte(program)), 0o644); err != nil {
		return err
	}
	if _, err := r.output(ctx, nil, "systemd-analyze", "verify", "--man=no", unit); err != nil {
		return err
	}
	_, err = r.output(ctx, nil, "systemd-analyze", "security", "--offline=yes", "--threshold="+maxExposure, unit)
	return err
}
