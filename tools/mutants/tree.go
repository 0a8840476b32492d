package main

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// copies makes n copies of a tree. remove removes them, also after an error.
func copies(root string, n int) (trees []string, remove func(), err error) {
	dir, err := os.MkdirTemp("", "mutants-")
	if err != nil {
		return nil, func() {}, err
	}
	remove = func() { _ = os.RemoveAll(dir) } // what stays in the temporary directory does no harm
	for i := range n {
		tree := filepath.Join(dir, fmt.Sprint(i))
		if err := copyTree(tree, root); err != nil {
			return nil, remove, fmt.Errorf("copy %s: %w", root, err)
		}
		trees = append(trees, tree)
	}
	return trees, remove, nil
}

// copyTree copies what the tests need: neither the history nor what was built.
func copyTree(to, from string) error {
	return filepath.WalkDir(from, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		switch name {
		case "bin", "dist", "rshub-data":
			return fs.SkipDir
		case ".git": // in a worktree it is a file
			if d.IsDir() {
				return fs.SkipDir
			}
			return nil
		}
		target := filepath.Join(to, name)
		info, err := d.Info()
		switch {
		case err != nil:
			return err
		case d.IsDir():
			return os.MkdirAll(target, 0o755)
		case !info.Mode().IsRegular():
			return nil
		}
		b, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		return os.WriteFile(target, b, info.Mode().Perm())
	})
}

// apply applies a diff to a tree, which need not be a repository.
func apply(tree string, diff []byte, flags ...string) error {
	_, err := git(tree, diff, append([]string{"apply"}, flags...)...)
	return err
}

// git runs git in a tree. A copy of the tree must not be taken for a part of a
// repository that it happens to lie in.
func git(tree string, in []byte, args ...string) ([]byte, error) {
	cmd := exec.Command("git", args...)
	cmd.Dir = tree
	cmd.Stdin = bytes.NewReader(in)
	above, err := filepath.Abs(filepath.Dir(tree))
	if err != nil {
		return nil, err
	}
	cmd.Env = append(os.Environ(), "GIT_CEILING_DIRECTORIES="+above)
	var said bytes.Buffer
	cmd.Stderr = &said
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("git %s: %w: %s", args[0], err, strings.TrimSpace(said.String()))
	}
	return out, nil
}

// A patch has one line of context, so that it survives edits nearby.
var diffTree = []string{"diff", "-U1", "--no-color", "--no-ext-diff", "--", ".", ":(exclude)tools/mutants"}

// takeEdits makes the uncommitted edits of a tree a patch, and undoes them.
func takeEdits(root, file string) error {
	header := "Wrong: \nBreaks: \nTest: \n\n"
	if b, err := os.ReadFile(file); err == nil {
		header, _ = split(string(b))
	}
	diff, err := git(root, nil, diffTree...)
	if err != nil {
		return err
	}
	if len(diff) == 0 {
		return errors.New("the tree has no uncommitted edits")
	}
	if err := os.WriteFile(file, append([]byte(header), diff...), 0o644); err != nil {
		return err
	}
	return apply(root, diff, "-R")
}

// refreshAll writes patches anew.
func refreshAll(root string, mutants []*mutant) error {
	if diff, err := git(root, nil, diffTree...); err != nil || len(diff) > 0 {
		return errors.Join(err, errors.New("the tree has uncommitted edits: commit them first"))
	}
	var errs []error
	for _, m := range mutants {
		err := apply(root, m.diff)
		if err == nil {
			err = takeEdits(root, m.file)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", m.name, err))
		}
	}
	return errors.Join(errs...)
}
