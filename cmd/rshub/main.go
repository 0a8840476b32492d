// Command rshub is a ResourceSync push hub. Sources tell it which of their resources
// were created, updated or deleted. It remembers these changes and pushes them to
// everybody who follows.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"syscall"

	_ "golang.org/x/crypto/x509roots/fallback" // for images, which have no certificate authorities

	"github.com/rshub/rshub/internal/build"
)

const usage = `rshub is a ResourceSync push hub.

  rshub                run the hub
  rshub backup DIR     copy the change memory of the running hub to DIR, a new
                       directory. To start a hub from the backup, set
                       RSHUB_DATA=DIR. If the hub has tokens, set RSHUB_TOKEN to
                       one with the right operate
  rshub copy --from MEMORY --to MEMORY
                       copy a change memory from disk to Redis or back; MEMORY
                       is a data directory or the URL of a Redis. rshub copy -h
                       explains more
  rshub epoch MEMORY   give new names to the open Change Lists. Run it before hubs
                       start on a memory that was restored by other means than
                       rshub backup and rshub copy, such as a snapshot of a disk
  rshub follow -set SET
                       print the changes of a set, from any hub, as they happen;
                       rshub follow -h explains more
  rshub audit -set SET FILE
                       compare a list of resources with a set of any hub, and
                       print the differences; rshub audit -h explains more
  rshub token new -name NAME -rights RIGHTS [-expires TIME] [-file FILE]
                       make a token for the caller NAME, and add its line to FILE,
                       or print it for RSHUB_TOKENS_FILE. RIGHTS are publish:SET,
                       follow:SET and operate, by comma; SET may end in *. TIME is
                       a time such as 2027-01-31, or a duration such as 720h
  rshub version        print the version, and what rshub was built from
  rshub -h             print this text

Environment variables configure the hub. To try it out, you need to set none.

`

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

// run runs a command and returns the exit code: 0, 1 when it failed, 2 when it
// was called wrongly. Of an audit, 1 says that something differs, and 2 that it failed.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	if len(args) == 0 {
		args = []string{"serve"}
	}
	if slices.Contains([]string{"backup", "epoch", "token"}, args[0]) && slices.ContainsFunc(args[1:], asksForHelp) {
		args = []string{"-h"}
	}
	var err error
	switch args[0] {
	case "serve":
		if err = noArguments(args); err == nil {
			err = serve(ctx, stderr)
		}
	case "backup":
		err = backup(ctx, args[1:], stdout)
	case "copy":
		err = copyMemory(ctx, args[1:], stdout, stderr)
	case "epoch":
		err = beginEpochs(ctx, args[1:], stdout, stderr)
	case "follow":
		err = follow(ctx, args[1:], stdout, stderr)
	case "audit":
		err = auditList(ctx, args[1:], os.Stdin, stdout, stderr)
	case "token":
		err = token(args[1:], stdout)
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
	case errors.Is(err, errDiffers):
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

func asksForHelp(arg string) bool { return arg == "-h" || arg == "-help" || arg == "--help" }

func noArguments(args []string) error {
	if len(args) > 1 {
		return usageError("rshub " + args[0] + " takes no arguments: environment variables configure it")
	}
	return nil
}

// A usageError means that a command was called wrongly. Its exit code is 2.
type usageError string

func (e usageError) Error() string { return string(e) }
