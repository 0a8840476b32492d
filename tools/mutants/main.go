// Command mutants shows that the tests notice wrong code. A mutant is a small
// wrong edit of rshub, kept as a patch in the directory patches. For each mutant
// the command copies the tree, applies the patch, and runs the test that the patch
// names. That test has to fail. A mutant that lives is a missing test.
//
//	mutants [-run REGEXP]   tries the mutants whose names match
//	mutants -check          only looks whether each patch applies
//	mutants -take NAME      makes the uncommitted edits of the tree the patch NAME,
//	                        and undoes the edits; the header of the patch stays
//	mutants -refresh        writes each patch anew, with the line numbers of today
//
// To repair a patch that does not apply any more, make its edit by hand and take it.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		stop()
		fmt.Fprintln(os.Stderr, "mutants:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("mutants", flag.ExitOnError)
	root := flags.String("root", "../..", "`directory` of rshub")
	patches := flags.String("patches", "patches", "`directory` of the patches")
	only := flags.String("run", "", "`regexp` that the names of the mutants match")
	workers := flags.Int("p", 2, "how many mutants are tried at once")
	check := flags.Bool("check", false, "only look whether each patch applies")
	take := flags.String("take", "", "make the uncommitted edits the patch of this `name`")
	refresh := flags.Bool("refresh", false, "write each patch anew")
	if err := flags.Parse(args); err != nil {
		return err
	}
	match, err := regexp.Compile(*only)
	if err != nil {
		return fmt.Errorf("-run: %w", err)
	}
	if flags.NArg() > 0 {
		return errors.New("there are no arguments, only flags; -h explains them")
	}
	if *take != "" {
		return takeEdits(*root, filepath.Join(*patches, *take+".patch"))
	}
	mutants, err := readAll(*patches)
	if err != nil {
		return err
	}
	mutants = slices.DeleteFunc(mutants, func(m *mutant) bool { return !match.MatchString(m.name) })
	if len(mutants) == 0 {
		return errors.New("no mutant has such a name")
	}
	if *refresh {
		return refreshAll(*root, mutants)
	}
	trees, remove, err := copies(*root, min(*workers, len(mutants)))
	defer remove()
	if err != nil {
		return err
	}
	if *check {
		return checkAll(trees[0], mutants)
	}
	begin := time.Now()
	if err := tryAll(ctx, trees, mutants); err != nil {
		return err
	}
	fmt.Printf("%d mutants, all killed, in %v\n", len(mutants), time.Since(begin).Round(time.Second))
	return nil
}

// checkAll looks whether the patches apply.
func checkAll(tree string, mutants []*mutant) error {
	var errs []error
	for _, m := range mutants {
		if err := apply(tree, m.diff, "--check"); err != nil {
			errs = append(errs, fmt.Errorf("%s does not apply: %w", m.name, err))
		}
	}
	return errors.Join(errs...)
}
