// Command release makes everything that a release of rshub consists of, in a
// directory, and verifies it. It publishes nothing, and needs the network only
// for Go modules.
package main

import (
	"bytes"
	"context"
	"debug/buildinfo"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

// A platform is what the programs are built for, in Go's words.
type platform struct{ system, architecture string }

func (p platform) String() string { return p.system + "_" + p.architecture }

// program is the file name of a program.
func (p platform) program(name string) string {
	if p.system == "windows" {
		name += ".exe"
	}
	return name
}

// allPlatforms are those of a whole release.
const allPlatforms = "linux/amd64,linux/arm64,darwin/amd64,darwin/arm64,windows/amd64,windows/arm64"

// A release is being made.
type release struct {
	platforms []platform
	root      string    // of the repository
	dist      string    // what is made goes there
	work      string    // programs by platform, such as linux_amd64/rshub; removed in the end
	version   string    // v1.2.3
	revision  string    // the commit
	when      time.Time // of the commit, and of every file
}

func run(ctx context.Context, args []string) (err error) {
	flags := flag.NewFlagSet("release", flag.ExitOnError)
	root := flags.String("root", ".", "`directory` of the repository")
	dist := flags.String("dist", "dist", "`directory` in it for what is made; what is there is removed")
	version := flags.String("version", "", "such as v1.2.3; default: the release that CHANGELOG.md begins with, if it has no tag yet, else the commit's tag, or v1.2.3-dev+REVISION")
	platforms := flags.String("platforms", allPlatforms, "by comma; fewer are for trying out")
	if err := flags.Parse(args); err != nil {
		return err
	}
	r := &release{version: *version}
	for p := range strings.SplitSeq(*platforms, ",") {
		system, architecture, _ := strings.Cut(p, "/")
		r.platforms = append(r.platforms, platform{system, architecture})
	}
	if r.root, err = filepath.Abs(*root); err != nil {
		return err
	}
	if err := os.Chdir(r.root); err != nil {
		return err
	}
	r.dist = filepath.Join(r.root, *dist)
	if err := r.prepare(ctx); err != nil {
		return err
	}
	defer os.RemoveAll(r.work)
	if err := r.chooseVersion(ctx); err != nil {
		return fmt.Errorf("choose the version: %w", err)
	}
	for _, step := range []struct {
		name string
		do   func(context.Context) error
	}{
		{"programs", r.buildPrograms}, {"archives", r.makeArchives}, {"image", r.makeImage}, {"packages", r.makePackages},
		{"chart", r.makeChart}, {"wheel", r.makeWheel}, {"bills of materials", r.makeBills}, {"checksums", r.makeChecksums}, {"verify", r.verify},
	} {
		begun := time.Now()
		fmt.Printf("== %s\n", step.name)
		if err := step.do(ctx); err != nil {
			return fmt.Errorf("%s: %w", step.name, err)
		}
		fmt.Printf("   %.1f s\n", time.Since(begun).Seconds())
	}
	return nil
}

// prepare asks git what is released, and makes empty directories. What is not
// committed would be released too, under the commit's name, so it is refused.
func (r *release) prepare(ctx context.Context) error {
	changed, err := r.output(ctx, nil, "git", "status", "--porcelain")
	if err != nil {
		return err
	}
	if changed != "" {
		return fmt.Errorf("a release is of what is committed, and these are not:\n%s", changed)
	}
	said, err := r.output(ctx, nil, "git", "log", "-1", "--format=%H %cI")
	if err != nil {
		return err
	}
	revision, when, _ := strings.Cut(said, " ")
	r.revision = revision
	if r.when, err = time.Parse(time.RFC3339, when); err != nil {
		return fmt.Errorf("the commit's time: %w", err)
	}
	r.when = r.when.UTC()
	if err := os.RemoveAll(r.dist); err != nil {
		return err
	}
	if err := os.MkdirAll(r.dist, 0o755); err != nil {
		return err
	}
	r.work, err = os.MkdirTemp("", "rshub-release-")
	return err
}

// buildPrograms builds the programs for every platform.
func (r *release) buildPrograms(ctx context.Context) error {
	for _, p := range r.platforms {
		env := []string{"GOOS=" + p.system, "GOARCH=" + p.architecture, "VERSION=" + r.version, "GOFLAGS=" + os.Getenv("GOFLAGS") + " -buildvcs=true"}
		if _, err := r.output(ctx, env, "scripts/build", filepath.Join(r.work, p.String())); err != nil {
			return fmt.Errorf("%s: %w", p, err)
		}
	}
	p := r.platforms[0]
	info, err := buildinfo.ReadFile(filepath.Join(r.work, p.String(), p.program("rshub")))
	if err != nil {
		return err
	}
	if info.Main.Version == "(devel)" {
		return errors.New("the programs do not know their commit, as in a worktree of git: release from a clone")
	}
	if err := r.verifyVersion(ctx); err != nil {
		return err
	}
	fmt.Println("  ", r.version)
	return nil
}

// linux are the platforms that have packages and images.
func (r *release) linux() (all []platform) {
	for _, p := range r.platforms {
		if p.system == "linux" {
			all = append(all, p)
		}
	}
	return all
}

// number is the version without its v.
func (r *release) number() string { return strings.TrimPrefix(r.version, "v") }

// output runs a program in the repository, with further variables, and returns
// what it says.
func (r *release) output(ctx context.Context, env []string, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = r.root
	cmd.Env = append(os.Environ(), env...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%s: %w\n%s%s", strings.Join(append([]string{name}, args...), " "), err, out, stderr.Bytes())
	}
	return strings.TrimSpace(string(out)), nil
}
