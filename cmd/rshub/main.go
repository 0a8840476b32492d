// Command rshub is a ResourceSync push hub. Sources report which of their resources were created,
// updated or deleted. The hub stores these changes and pushes them to followers.
//
// The environment variables are defined in config.go, and package internal/server implements the
// hub. docs/start.md describes how to run it.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	_ "golang.org/x/crypto/x509roots/fallback" // for container images, which lack root certificates

	"github.com/rshub/rshub/internal/build"
)

const usage = `Usage: rshub [command] [flags]

rshub is a ResourceSync push hub. It is configured by environment variables.

Commands:
  rshub                run the hub
  rshub backup DIR     copy the change memory of the running hub to the new
                       directory DIR; start a hub from it with RSHUB_DATA=DIR.
                       If the hub has tokens, set RSHUB_TOKEN to one with the
                       right operate
  rshub copy --from DIR --to URL
                       copy a data directory to Redis, including positions,
                       datetimes, cursors, idempotency keys and subscriptions
  rshub follow -set SET | -all
                       print the changes of a set, of several or of all as they
                       are published to a hub
  rshub audit -set SET FILE
                       compare a list of resources with a set of a hub, and print
                       the differences
  rshub token new -name NAME -rights RIGHTS [-expires TIME] [-file FILE]
                       create a token and its line for RSHUB_TOKENS_FILE; RIGHTS
                       is a comma-separated list of publish:SET, follow:SET and
                       operate, where SET may end in *
  rshub health         check whether the hub on this machine is ready; exit with
                       0 if it is, 1 if not, 2 if RSHUB_OPS_LISTEN is empty,
                       within five seconds
  rshub version        print version and build information
  rshub -h             print this help

The commands copy, follow and audit have a -h flag of their own.

Environment variables, all optional for a hub on loopback:

`

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal terminates the process immediately
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

// run runs a command and returns its exit code: 0 on success, 1 if the command failed, 2 if
// its arguments are invalid. For audit, 1 means that it found differences, and 2 that it
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
		err = usageError("unknown command " + args[0])
	}
	switch {
	case err == nil:
		return 0
	case errors.Is(err, errDifferences):
		return 1
	}
	fmt.Fprintln(stderr, "rshub:", err)
	if _, ok := errors.AsType[usageError](err); ok {
		fmt.Fprintln(stderr, "Run 'rshub -h' for usage.")
		return 2
	}
	if args[0] == "audit" {
		return 2
	}
	return 1
}

// rejectArguments returns a usageError if args has more than the name of the command.
func rejectArguments(args []string) error {
	if len(args) > 1 {
		return usageError("rshub " + args[0] + " takes no arguments; use environment variables to configure it")
	}
	return nil
}

// A usageError reports invalid arguments of a command. Its exit code is 2.
type usageError string

func (e usageError) Error() string { return string(e) }
