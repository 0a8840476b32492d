// Command rsmirror is the tool of a destination. It maintains a copy of a source's resources in a
// directory, or passes their changes on to another program, and proves that the copy is right.
//
// Package internal/mirror does the work. docs/destinations.md describes the command.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	_ "golang.org/x/crypto/x509roots/fallback" // for images, which have no certificate authorities

	"github.com/rshub/rshub/internal/build"
	"github.com/rshub/rshub/internal/mirror"
	"github.com/rshub/rshub/internal/mirror/home"
	"github.com/rshub/rshub/internal/progress"
	"github.com/rshub/rshub/internal/source/reconcile"
)

// The exit codes. Scripts rely on them. help.go explains them to users.
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
	context.AfterFunc(ctx, stop) // a second Ctrl-C ends the process at once, which is safe too
	os.Exit(run(ctx, os.Args[1:], os.Getenv, os.Stdout, os.Stderr))
}

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
	if cfg.audit {
		err = p.runAudit(ctx)
	} else {
		err = p.runMirror(ctx)
	}
	p.report.Clear()
	return p.reportError(ctx, err)
}

// reportParseError ends a command whose command line asks for help or is wrong.
func reportParseError(err error, stdout, stderr io.Writer) int {
	if errors.Is(err, flag.ErrHelp) {
		fmt.Fprint(stdout, help)
		return exitOK
	}
	fmt.Fprintf(stderr, "rsmirror: %v\nrsmirror -h explains everything.\n", err)
	return exitUsage
}

// A program is one run of rsmirror.
type program struct {
	*config
	stdout, stderr io.Writer
	report         *report
}

// newProgram returns a program whose report has begun.
func newProgram(cfg *config, env func(string) string, stdout, stderr io.Writer) *program {
	p := &program{config: cfg, stdout: stdout, stderr: stderr, report: &report{
		Line: progress.Line{W: stderr, Terminal: progress.IsTerminal(stderr) && env("TERM") != "dumb", Quiet: cfg.quiet, Now: time.Now},
	}}
	p.report.start()
	return p
}

// errDifferences means that something is missing or differs. It was already
// reported.
var errDifferences = errors.New("there are differences")

// reportError prints what went wrong, and returns the exit code.
func (p *program) reportError(ctx context.Context, err error) int {
	printf := func(text string, args ...any) { fmt.Fprintf(p.stderr, "rsmirror: "+text+"\n", args...) }
	_, tooMany := errors.AsType[*reconcile.TooMany](err)
	_, sourceFailed := errors.AsType[*mirror.SourceError](err)
	switch {
	case err == nil:
		return exitOK
	case errors.Is(err, errDifferences):
		return exitDifferences
	case ctx.Err() != nil && (p.once || p.audit):
		printf("interrupted; run it again to go on")
		return exitInterrupted
	case ctx.Err() != nil:
		return exitOK
	case tooMany:
		printf("%v; none of them is deleted now", err)
		printf("if that is right, allow it with -max-delete: a number, a share such as 50%%, or all")
		return exitTooManyDeletions
	case sourceFailed:
		printf("%v", err)
		return exitSource
	case errors.Is(err, home.ErrForeign):
		printf("%v; -adopt takes it all the same", err)
	case errors.Is(err, home.ErrNoMirror):
		printf("%v: rsmirror URL %s makes one", err, p.dir)
	default:
		printf("%v", err)
	}
	return exitDirectory
}
