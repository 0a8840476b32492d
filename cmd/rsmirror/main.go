// Command rsmirror is the tool of a destination. It maintains a copy of a source's resources in a
// directory, or passes their changes to another program, and verifies the copy.
//
// Package internal/mirror implements mirrors. docs/destinations.md describes the command.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	_ "golang.org/x/crypto/x509roots/fallback" // for container images, which lack root certificates

	"github.com/rshub/rshub/internal/build"
	"github.com/rshub/rshub/internal/mirror"
	"github.com/rshub/rshub/internal/mirror/fetch"
	"github.com/rshub/rshub/internal/mirror/home"
	"github.com/rshub/rshub/internal/progress"
	"github.com/rshub/rshub/internal/source/reconcile"
)

// Exit codes. Scripts rely on them, and help documents them.
const (
	exitOK               = 0
	exitDifferences      = 1
	exitUsage            = 2
	exitDirectory        = home.FatalStatus // 3
	exitSource           = 4
	exitTooManyDeletions = 5
	exitInterrupted      = 130
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second Ctrl-C terminates the process immediately, which is safe
	os.Exit(run(ctx, os.Args[1:], os.Getenv, os.Stdout, os.Stderr))
}

// run runs a command and returns its exit code. env returns the values of environment variables.
func run(ctx context.Context, args []string, env func(string) string, stdout, stderr io.Writer) int {
	if len(args) > 0 && args[0] == "dump" {
		return runDump(ctx, args[1:], env, stdout, stderr)
	}
	cfg, err := parseArgs(args, env)
	switch {
	case err != nil:
		return reportParseError(err, stdout, stderr)
	case cfg.version:
		fmt.Fprintln(stdout, build.Line("rsmirror"))
		return exitOK
	}
	p := newProgram(cfg, env, stdout, stderr)
	switch {
	case cfg.audit:
		err = p.runAudit(ctx)
	case cfg.settings.All:
		err = p.runAll(ctx)
	default:
		err = p.runMirror(ctx)
	}
	p.report.Clear()
	return p.reportError(ctx, err)
}

// reportParseError prints the help if err is flag.ErrHelp, else err. It returns the exit code.
func reportParseError(err error, stdout, stderr io.Writer) int {
	if errors.Is(err, flag.ErrHelp) {
		fmt.Fprint(stdout, help)
		return exitOK
	}
	fmt.Fprintf(stderr, "rsmirror: %v\nRun 'rsmirror -h' for usage.\n", err)
	return exitUsage
}

// A program is one run of rsmirror.
type program struct {
	*config
	stdout, stderr io.Writer
	report         *report

	lastNotes *sync.Map      // last message of noteNew, by set
	set       string         // set of a hub whose sets are all mirrored; empty for a single mirror
	documents *http.Client   // client for the documents and the hub of the source; see makeClients
	fetcher   *fetch.Fetcher // for contents
	counts    *auditCounts   // for audits
}

// newProgram returns a program whose progress report has started.
func newProgram(cfg *config, env func(string) string, stdout, stderr io.Writer) *program {
	p := &program{config: cfg, stdout: stdout, stderr: stderr, lastNotes: new(sync.Map), report: &report{
		Line: progress.Line{W: stderr, Terminal: progress.IsTerminal(stderr) && env("TERM") != "dumb", Quiet: cfg.quiet, Now: time.Now},
	}}
	p.report.start()
	return p
}

// errDifferences reports that resources are missing or differ. They were already printed.
var errDifferences = errors.New("there are differences")

// label returns the start of messages.
func (p *program) label() string {
	if p.set != "" {
		return "rsmirror: set " + p.set + ": "
	}
	return "rsmirror: "
}

// note prints a message.
func (p *program) note(format string, args ...any) {
	p.report.Note("%s", p.label()+fmt.Sprintf(format, args...))
}

// noteNew prints a message, unless it is the same as the last one of the set: a set that is opened again
// and again repeats its messages.
func (p *program) noteNew(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	if last, _ := p.lastNotes.Swap(p.set, text); p.set == "" || last != text {
		p.note("%s", text)
	}
}

// reportError prints err with advice, and returns the exit code.
func (p *program) reportError(ctx context.Context, err error) int {
	printf := func(format string, args ...any) { p.report.Error("%s", p.label()+fmt.Sprintf(format, args...)) }
	failed, setsFailed := errors.AsType[*setsError](err)
	_, tooMany := errors.AsType[*reconcile.TooManyDeletions](err)
	_, sourceFailed := errors.AsType[*mirror.SourceError](err)
	switch {
	case err == nil:
		return exitOK
	case setsFailed:
		return failed.code
	case errors.Is(err, errDifferences):
		return exitDifferences
	case ctx.Err() != nil && (p.once || p.audit):
		printf("interrupted; run the same command again to resume")
		return exitInterrupted
	case ctx.Err() != nil:
		return exitOK
	case tooMany:
		printf("%v; none of them was deleted", err)
		printf("to allow the deletions, use -max-delete with a number, a share such as 50%%, or all")
		return exitTooManyDeletions
	case sourceFailed:
		printf("%v", err)
		return exitSource
	case errors.Is(err, home.ErrForeign):
		printf("%v; use -adopt to mirror into it anyway", err)
	case errors.Is(err, home.ErrNoMirror):
		printf("%v; to create one, run rsmirror URL %s", err, p.dir)
	default:
		printf("%v", err)
	}
	return exitDirectory
}
