package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/rshub/rshub/internal/access"
)

const tokenUsage = "rshub token new -name NAME -rights RIGHTS [-expires TIME] [-file FILE]"

// createToken creates a token and prints it. Only the token's digest is stored.
func createToken(args []string, stdout io.Writer) error {
	if len(args) == 0 || args[0] != "new" {
		return usageError(tokenUsage)
	}
	flags := flag.NewFlagSet("rshub token new", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	name := flags.String("name", "", "name of the token's owner")
	rights := flags.String("rights", "", "comma-separated list of publish:SET, follow:SET and operate")
	expires := flags.String("expires", "", "expiry: a time such as 2027-01-31, or a duration such as 720h")
	file := flags.String("file", "", "tokens file to which the line is added")
	if err := flags.Parse(args[1:]); errors.Is(err, flag.ErrHelp) {
		return usageError(tokenUsage)
	} else if err != nil {
		return usageError(err.Error())
	}
	if flags.NArg() > 0 || *name == "" || *rights == "" || strings.ContainsAny(*name, " \t\n#") || *name == access.Anyone {
		return usageError(tokenUsage + ": NAME must be one word other than " + access.Anyone)
	}
	if _, err := access.ParseRights(*rights); err != nil {
		return usageError(err.Error())
	}
	until, err := parseExpiry(*expires, time.Now())
	if err != nil {
		return usageError(err.Error())
	}
	text, line, err := access.NewLine(*name, *rights, until)
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
	fmt.Fprintf(stdout, "token: %s\nadded its line to %s; a running hub reads it within seconds\n", text, *file)
	return nil
}

// parseExpiry parses the expiry of a token: a time, or a duration after now. It returns the
// zero time, which means never, if text is empty.
func parseExpiry(text string, now time.Time) (at time.Time, err error) {
	if text == "" {
		return time.Time{}, nil
	}
	if d, err := time.ParseDuration(text); err == nil {
		at = now.Add(d).Truncate(time.Second)
	} else if at, err = access.ParseTime(text); err != nil {
		return time.Time{}, fmt.Errorf("-expires: %w, nor a duration such as 720h", err)
	}
	if !at.After(now) {
		return time.Time{}, fmt.Errorf("-expires: %s is in the past", at.Format(time.RFC3339))
	}
	return at, nil
}
