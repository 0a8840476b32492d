package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"
)

// timeout bounds a test. A mutant that makes its test hang is killed by it.
const timeout = time.Minute

// tryAll tries mutants and prints what came of each. An error names those that are
// not killed.
func tryAll(ctx context.Context, trees []string, mutants []*mutant) error {
	// First the tests have to pass without a mutant.
	var packages []string
	tests := make(map[string][]test)
	for _, m := range mutants {
		pkg := m.test.pkg
		if tests[pkg] == nil {
			packages = append(packages, pkg)
		}
		if !slices.Contains(tests[pkg], m.test) {
			tests[pkg] = append(tests[pkg], m.test)
		}
	}
	broken := make(map[test]error)
	var mu sync.Mutex // guards broken and errs, and what is printed
	each(ctx, trees, packages, func(tree, pkg string) {
		program, remove, err := compile(ctx, tree, pkg)
		defer remove()
		for _, t := range tests[pkg] {
			terr := err
			if terr == nil {
				terr = passes(ctx, tree, program, t)
			}
			mu.Lock()
			broken[t] = terr
			mu.Unlock()
		}
	})
	var errs []error
	each(ctx, trees, mutants, func(tree string, m *mutant) {
		begin := time.Now()
		err := broken[m.test]
		if err == nil {
			err = kill(ctx, tree, m)
		}
		mu.Lock()
		defer mu.Unlock()
		word := "killed"
		if err != nil {
			word = "NOT KILLED"
			errs = append(errs, fmt.Errorf("%s (%s): %w", m.name, m.test, err))
		}
		fmt.Printf("%-10s %-3s %-32s %5.1fs  %s\n", word, m.breaks, m.name, time.Since(begin).Seconds(), m.test)
		if err != nil {
			fmt.Printf("           %v\n", err)
		}
	})
	return errors.Join(append(errs, ctx.Err())...)
}

// each calls do for all items, one after another in each tree.
func each[T any](ctx context.Context, trees []string, items []T, do func(tree string, item T)) {
	next := make(chan T)
	var running sync.WaitGroup
	for _, tree := range trees {
		running.Go(func() {
			for item := range next {
				if ctx.Err() == nil {
					do(tree, item)
				}
			}
		})
	}
	for _, item := range items {
		next <- item
	}
	close(next)
	running.Wait()
}

// passes returns nil if a test runs and passes.
func passes(ctx context.Context, tree, program string, t test) error {
	out, failed, err := runTest(ctx, tree, program, t)
	switch {
	case err != nil:
		return err
	case failed:
		return fmt.Errorf("the test fails without the mutant: %s", end(out))
	case !bytes.Contains(out, []byte("--- PASS: "+t.name)):
		return errors.New("there is no such test")
	}
	return nil
}

// kill returns nil if the test of a mutant fails with it.
func kill(ctx context.Context, tree string, m *mutant) error {
	if err := apply(tree, m.diff); err != nil {
		return fmt.Errorf("it does not apply: %w", err)
	}
	program, remove, err := compile(ctx, tree, m.test.pkg)
	defer remove()
	failed := false
	if err == nil {
		_, failed, err = runTest(ctx, tree, program, m.test)
	}
	if rerr := apply(tree, m.diff, "-R"); err == nil {
		err = rerr
	}
	if err == nil && !failed {
		err = errors.New("it lives: " + m.wrong)
	}
	return err
}

// compile compiles the tests of a package. remove removes the program, also after an
// error.
func compile(ctx context.Context, tree, pkg string) (program string, remove func(), err error) {
	program = filepath.Join(tree, "mutant.test")
	remove = func() { _ = os.Remove(program) } // the next one overwrites it
	cmd := exec.CommandContext(ctx, "go", "test", "-c", "-vet=off", "-o", program, pkg)
	cmd.Dir = tree
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", remove, fmt.Errorf("it does not compile: %w: %s", err, end(out))
	}
	return program, remove, nil
}

// runTest runs a test. A test that takes longer than timeout has failed. An error means
// that it did not run.
func runTest(ctx context.Context, tree, program string, t test) (out []byte, failed bool, err error) {
	parts := strings.Split(t.name, "/")
	for i, p := range parts {
		parts[i] = "^" + p + "$"
	}
	args := []string{"-test.run=" + strings.Join(parts, "/"), "-test.timeout=" + timeout.String(), "-test.v"}
	if !t.long {
		args = append(args, "-test.short")
	}
	ctx, cancel := context.WithTimeout(ctx, timeout+30*time.Second) // the test's own timeout comes first, and says where it hangs
	defer cancel()
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Dir = filepath.Join(tree, filepath.FromSlash(t.pkg))
	cmd.WaitDelay = 5 * time.Second
	out, err = cmd.CombinedOutput()
	if _, ended := errors.AsType[*exec.ExitError](err); ended && ctx.Err() == nil {
		return out, true, nil
	}
	return out, false, err
}

// end returns the last lines of an output.
func end(out []byte) string {
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	return strings.Join(lines[max(0, len(lines)-15):], "\n")
}
