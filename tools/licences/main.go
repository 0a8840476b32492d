// Command licences keeps THIRD_PARTY.md: every module that the released programs link, with
// its licence, its copyright, and the whole text. It asks Go itself what is linked, for every
// platform of a release, and reads the licences in the module cache.
//
//	licences          fails if THIRD_PARTY.md is not what it would write
//	licences -write   writes it
//
// It fails as well if a module has no licence, a licence that it does not know, or one that
// is not among those that rshub may link.
package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
)

// document is the file that is kept, in the root of the repository.
const document = "THIRD_PARTY.md"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		stop()
		fmt.Fprintln(os.Stderr, "licences:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("licences", flag.ExitOnError)
	root := flags.String("root", "../..", "`directory` of rshub")
	write := flags.Bool("write", false, "write "+document+" instead of comparing it")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() > 0 {
		return errors.New("there are no arguments, only flags; -h explains them")
	}
	modules, err := linked(ctx, *root)
	if err != nil {
		return err
	}
	text, err := render(modules)
	if err != nil {
		return err
	}
	file := filepath.Join(*root, document)
	if *write {
		return os.WriteFile(file, text, 0o644)
	}
	kept, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	return compare(kept, text)
}

// compare returns an error that names the first line in which the document that is kept is
// not as it should be.
func compare(kept, want []byte) error {
	if bytes.Equal(kept, want) {
		return nil
	}
	is, should := bytes.Split(kept, []byte("\n")), bytes.Split(want, []byte("\n"))
	for i := range max(len(is), len(should)) {
		var a, b []byte
		if i < len(is) {
			a = is[i]
		}
		if i < len(should) {
			b = should[i]
		}
		if !bytes.Equal(a, b) {
			return fmt.Errorf("line %d of %s is %q, and has to be %q; make licences writes it anew", i+1, document, a, b)
		}
	}
	return nil
}
