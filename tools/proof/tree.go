package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

const module = "github.com/rshub/rshub"

// reruns is how many failed tests of one run of the gate are run once more.
const reruns = 2

// A tree is the repository that is tested.
type tree struct {
	root     string
	kept     string // the directory of the results
	programs string // the directory of the built programs; empty until a test needs them
	out      io.Writer
}

func newTree(root string) (*tree, error) {
	t := &tree{root: root, kept: filepath.Join(root, ".proof"), out: os.Stdout}
	if err := os.MkdirAll(t.kept, 0o755); err != nil {
		return nil, err
	}
	return t, nil
}

func (t *tree) close() {
	if t.programs != "" {
		_ = os.RemoveAll(t.programs)
	}
}

// run runs parts one after the other and prints the table. The gate ends with the first part that
// is red, and runs at most two failed tests once more; otherwise all parts are run, with two each.
func (t *tree) run(ctx context.Context, parts []part, gate bool) error {
	var results []result
	left := reruns
	for _, p := range parts {
		if !gate {
			left = reruns
		}
		fmt.Fprintf(t.out, "== %s\n", p.name)
		r := t.runPart(ctx, p, left)
		r.Revision = t.revision(ctx)
		left -= len(r.Flaky)
		results = append(results, r)
		if err := t.keep(r, gate); err != nil {
			return err
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if r.Red != "" && gate {
			break
		}
	}
	table(t.out, results)
	for _, r := range results {
		if r.Red != "" {
			return fmt.Errorf("%s is red: %s", r.Part, r.Red)
		}
	}
	return nil
}

func (t *tree) runPart(ctx context.Context, p part, left int) (r result) {
	r.Part = p.name
	begin := time.Now()
	defer func() { r.Seconds = time.Since(begin).Seconds() }()
	for i, s := range p.steps {
		if err := t.runStep(ctx, fmt.Sprintf("%s-%d", p.name, i+1), s, left-len(r.Flaky), &r); err != nil {
			r.Red = err.Error()
			return r
		}
	}
	return r
}

func (t *tree) runStep(ctx context.Context, name string, s step, left int, r *result) error {
	if s.command != "" {
		return t.command(ctx, s, "sh", "-c", s.command).Run()
	}
	if s.dir == "e2e" && t.programs == "" {
		dir, err := os.MkdirTemp("", "rshub-programs-")
		if err != nil {
			return err
		}
		t.programs = dir
		if err := t.command(ctx, step{}, "scripts/build", dir).Run(); err != nil {
			return fmt.Errorf("build the programs: %w", err)
		}
	}
	packages, err := t.packages(ctx, s)
	if err != nil {
		return err
	}
	events := filepath.Join(t.kept, name+".json")
	args := []string{"tool", "-modfile=" + filepath.Join(t.root, "tools", "go.mod"), "gotestsum",
		"--format=pkgname", "--format-hide-empty-pkg", "--hide-summary=skipped", "--jsonfile=" + events, "--packages=" + strings.Join(packages, " ")}
	if left > 0 {
		args = append(args, "--rerun-fails=1", fmt.Sprintf("--rerun-fails-max-failures=%d", left), "--rerun-fails-abort-on-data-race", "--rerun-fails-run-root-test")
	}
	args = append(args, "--", "-vet=off")
	if s.race {
		args = append(args, "-race", "-tags=pebblegozstd")
	}
	failed := t.command(ctx, s, "go", append(args, s.flags...)...).Run()
	file, err := os.Open(events)
	if err != nil {
		return errors.Join(failed, err)
	}
	defer file.Close()
	read, err := readEvents(file)
	if err != nil {
		return errors.Join(failed, fmt.Errorf("%s: %w", events, err))
	}
	r.add(read)
	if err := read.verdict(); err != nil {
		return err
	}
	return failed
}

// command is a command in a directory of the tree, with the environment of the tests.
func (t *tree) command(ctx context.Context, s step, name string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = filepath.Join(t.root, s.dir)
	cmd.Stdout, cmd.Stderr = t.out, t.out
	cmd.Env = append(os.Environ(), s.env...)
	if s.race {
		cmd.Env = append(cmd.Env, "CGO_ENABLED=1")
	}
	if t.programs != "" {
		cmd.Env = append(cmd.Env, "RSHUB_E2E_PROGRAMS="+t.programs)
	}
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 30 * time.Second
	return cmd
}

// packages returns the packages of a step that have tests.
func (t *tree) packages(ctx context.Context, s step) ([]string, error) {
	list := func(patterns []string) ([]string, error) {
		if len(patterns) == 0 {
			return nil, nil
		}
		cmd := t.command(ctx, s, "go", append([]string{"list", "-f", "{{if or .TestGoFiles .XTestGoFiles}}{{.ImportPath}}{{end}}"}, patterns...)...)
		cmd.Stdout = nil
		out, err := cmd.Output()
		if err != nil {
			return nil, fmt.Errorf("go list %s: %w", strings.Join(patterns, " "), err)
		}
		return strings.Fields(string(out)), nil
	}
	all, err := list(s.tests)
	if err != nil {
		return nil, err
	}
	without, err := list(s.without)
	if err != nil {
		return nil, err
	}
	all = slices.DeleteFunc(all, func(p string) bool { return slices.Contains(without, p) })
	if len(all) == 0 {
		return nil, fmt.Errorf("no package has tests: %s", strings.Join(s.tests, " "))
	}
	return all, nil
}

// revision is the commit that is tested, or nothing if there are other changes.
func (t *tree) revision(ctx context.Context) string {
	if changes, err := git(ctx, t.root, "status", "--porcelain"); err != nil || changes != "" {
		return ""
	}
	head, err := git(ctx, t.root, "rev-parse", "HEAD")
	if err != nil {
		return ""
	}
	return head
}

// keep writes the result of a part of prove, so that a later run goes on behind it.
func (t *tree) keep(r result, gate bool) error {
	if gate {
		return nil
	}
	b, err := json.Marshal(r)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(t.kept, r.Part+".result"), b, 0o644)
}

// open returns the parts that have not passed at this commit.
func (t *tree) open(ctx context.Context, parts []part) []part {
	head := t.revision(ctx)
	return slices.DeleteFunc(slices.Clone(parts), func(p part) bool {
		b, err := os.ReadFile(filepath.Join(t.kept, p.name+".result"))
		if err != nil || head == "" {
			return false
		}
		var r result
		if json.Unmarshal(b, &r) != nil || r.Red != "" || r.Revision != head {
			return false
		}
		fmt.Fprintf(t.out, "== %s passed before, at this commit\n", p.name)
		return true
	})
}
