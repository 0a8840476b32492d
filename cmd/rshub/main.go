// Command rshub is a ResourceSync push hub. Sources report which of their resources were created,
// updated or deleted. The hub stores these changes and pushes them to followers.
//
// config.go has the environment; package internal/server is the hub itself. docs/start.md shows how
// to run it.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	_ "golang.org/x/crypto/x509roots/fallback" // for images, which have no certificate authorities

	"github.com/rshub/rshub/internal/build"
)

const usage = `rshub is a ResourceSync push hub.

  rshub                run the hub
  rshub backup DIR     copy the change memory of the running hub to DIR, which
                       must not exist; a hub starts from it with RSHUB_DATA=DIR.
                       If the hub has tokens, set RSHUB_TOKEN to one with the
                       right operate
  rshub copy --from DIR --to URL
                       copy what a hub keeps from its data directory into a Redis,
                       with positions, datetimes, cursors, idempotency keys and
                       subscriptions. rshub copy -h explains more
  rshub follow -set SET
                       print the changes of a set as they come, from any hub;
                       rshub follow -h explains more
  rshub audit -set SET FILE
                       compare a list of resources, one on each line as JSON, with
                       what any hub knows of a set, and print what differs; rshub
                       audit -h explains more
  rshub token new -name NAME -rights RIGHTS [-file FILE]
                       make a token and the line for RSHUB_TOKENS_FILE; RIGHTS
                       are publish:SET, follow:SET and operate, separated by
                       commas, where SET may end in *
  rshub health         ask the hub of this machine whether it is ready: exit code
                       0 if so, 1 if not, 2 if RSHUB_OPS_LISTEN is empty; it
                       takes at most five seconds
  rshub version        print the version, and what rshub was built from
  rshub -h             print this

These environment variables configure it. None is needed to try it out.

`

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

// run runs a command and returns the exit code: 0, 1 if the command failed, 2 if it was
// called wrongly. For an audit, 1 means that there are differences, and 2 that it
// failed.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	if len(args) == 0 {
		args = []string{"serve"}
	}
	var err error
	switch args[0] {
	case "serve":
		if err = rejectArguments(args); err == nil {
			err = serve(ctx, stderr)
		}
	case "backup":
		err = runBackup(ctx, args[1:], stdout)
	case "copy":
		err = runCopy(ctx, args[1:], stdout, stderr)
	case "follow":
		err = runFollow(ctx, args[1:], stdout, stderr)
	case "audit":
		err = runAudit(ctx, args[1:], os.Stdin, stdout, stderr)
	case "health":
		err = checkHealth(ctx, args, stdout)
	case "token":
		err = createToken(args[1:], stdout)
	case "version", "-version", "--version":
		fmt.Fprintln(stdout, build.Line("rshub"))
	case "-h", "-help", "--help", "help":
		fmt.Fprint(stdout, usage)
		err = printVariables(stdout)
	default:
		err = usageError("there is no command " + args[0])
	}
	switch {
	case err == nil:
		return 0
	case errors.Is(err, errDifferences):
		return 1
	}
	fmt.Fprintln(stderr, "rshub:", err)
	if _, ok := errors.AsType[usageError](err); ok {
		fmt.Fprintln(stderr, "rshub -h explains how to call it")
		return 2
	}
	if args[0] == "audit" {
		return 2
	}
	return 1
}

func rejectArguments(args []string) error {
	if len(args) > 1 {
		return usageError("rshub " + args[0] + " takes no arguments; it is configured by its environment")
	}
	return nil
}

// A usageError means that a command was called wrongly. Its exit code is 2.
type usageError string

func (e usageError) Error() string { return string(e) }
