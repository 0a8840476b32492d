package main

import (
	"flag"
	"fmt"
	"io"
	"strings"

	"github.com/rshub/rshub/access"
)

// token makes a token. It prints the token, and keeps only the token's digest.
func token(args []string, stdout io.Writer) error {
	if len(args) == 0 || args[0] != "new" {
		return usageError("rshub token new -name NAME -rights RIGHTS [-file FILE]")
	}
	flags := flag.NewFlagSet("rshub token new", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	name := flags.String("name", "", "who the token is for")
	rights := flags.String("rights", "", "publish:SET, follow:SET and operate, by comma")
	file := flags.String("file", "", "tokens file to add the line to")
	if err := flags.Parse(args[1:]); err != nil {
		return usageError(err.Error())
	}
	if flags.NArg() > 0 || *name == "" || *rights == "" || strings.ContainsAny(*name, " \t\n#") || *name == access.Anyone {
		return usageError("rshub token new -name NAME -rights RIGHTS [-file FILE]: NAME is one word, and not " + access.Anyone)
	}
	if _, err := access.ParseRights(*rights); err != nil {
		return usageError(err.Error())
	}
	text, line, err := access.NewLine(*name, *rights)
	if err != nil {
		return usageError(err.Error())
	}
	if *file == "" {
		fmt.Fprintf(stdout, "token: %s\nadd to RSHUB_TOKENS_FILE: %s\n", text, line)
		return nil
	}
	if err := access.AddLine(*file, line); err != nil {
		return err
	}
	fmt.Fprintf(stdout, "token: %s\nits line was added to %s; the hub reads it when it starts\n", text, *file)
	return nil
}
