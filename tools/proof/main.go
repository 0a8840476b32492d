// Command proof runs the tests of rshub in their tiers, and says what each part took.
//
//	proof gate [PART...]     what any change may break
//	proof all [PART...]      the parts that are named, else all: those first that have not
//	                         passed at this commit
//	proof concerned SINCE    the parts that the changes since a commit concern
//	proof list               the parts, what each of them holds, and which changes concern it
//
// A test that fails is run once more, and named when it passes then. At most two are, in the gate
// or in a part, and none after a data race, a panic, or a package that failed and named no test.
//
// It works in the repository that the working directory is in. Results are kept in
// .proof/ there, with the whole output of go test.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "proof:", err)
		stop()
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	if len(args) == 0 {
		return errors.New("say gate, all, concerned or list")
	}
	root, err := git(ctx, ".", "rev-parse", "--show-toplevel")
	if err != nil {
		return err
	}
	t, err := newTree(root)
	if err != nil {
		return err
	}
	defer t.close()
	switch verb, rest := args[0], args[1:]; verb {
	case "gate":
		parts, err := named(gate, rest)
		if err != nil {
			return err
		}
		return t.run(ctx, parts, true)
	case "all":
		parts, err := named(prove, rest)
		if err != nil {
			return err
		}
		if len(rest) == 0 {
			parts = t.open(ctx, parts)
		}
		return t.run(ctx, parts, false)
	case "concerned":
		if len(rest) != 1 {
			return errors.New("concerned wants one commit: the one since which something changed")
		}
		parts, err := t.concerned(ctx, rest[0])
		if err != nil {
			return err
		}
		return t.run(ctx, parts, false)
	case "list":
		fmt.Print(list())
		return nil
	default:
		return fmt.Errorf("there is no %q: say gate, all, concerned or list", verb)
	}
}

// git runs git in a directory and returns what it printed, without the last newline.
func git(ctx context.Context, dir string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "git", args...)
	cmd.Dir = dir
	out, err := cmd.Output()
	if err != nil {
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			err = fmt.Errorf("%w: %s", err, exit.Stderr)
		}
		return "", fmt.Errorf("git %s: %w", strings.Join(args, " "), err)
	}
	return strings.TrimSuffix(string(out), "\n"), nil
}
