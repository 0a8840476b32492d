// Command rspublish is the tool of a source. It publishes changes to a hub: from files, standard
// input or its command line, in order, and each only once, even after interruptions.
//
// For a source without a record of its changes, rspublish finds out what has changed: sync does so
// once for a directory or a list, watch as changes happen, and relay polls a source on the web.
// dump packs a directory, or the records of a repository, for destinations that want everything in
// few requests.
//
// The packages of internal/source do the work. docs/sources.md and docs/relay.md describe the
// commands.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	_ "golang.org/x/crypto/x509roots/fallback" // for images, which have no certificate authorities

	"github.com/rshub/rshub/internal/backoff"
	"github.com/rshub/rshub/internal/build"
	"github.com/rshub/rshub/internal/progress"
)

// The exit codes. Scripts rely on them. The text exitCodes explains them to users.
const (
	exitOK               = 0
	exitRefused          = 1
	exitUsage            = 2
	exitInput            = 3
	exitUnavailable      = 4
	exitTooManyDeletions = 5
	exitGaps             = 6
	exitInterrupted      = 130
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second Ctrl-C ends the process at once, which is safe too
	os.Exit(run(ctx, os.Args[1:], os.Getenv, os.Stdin, os.Stdout, os.Stderr))
}

func run(ctx context.Context, args []string, env func(string) string, stdin io.Reader, stdout, stderr io.Writer) int {
	p := &program{
		env: env, stdin: stdin, stdout: stdout, stderr: stderr,
		terminal: progress.IsTerminal(stderr) && env("TERM") != "dumb",
		cacheDir: os.UserCacheDir,
		now:      time.Now,
		sleep:    backoff.Sleep,
	}
	return p.run(ctx, args)
}

// A program is rspublish and what it gets from the process that it runs in.
type program struct {
	env            func(string) string
	stdin          io.Reader
	stdout, stderr io.Writer
	terminal       bool // stderr is a terminal
	cacheDir       func() (string, error)
	now            func() time.Time
	sleep          func(ctx context.Context, d time.Duration) error // waits before something is tried again
}

type commandError struct {
	code      int
	err       error
	hasAdvice bool // the text says what the user can do
}

func (f *commandError) Error() string { return f.err.Error() }
func (f *commandError) Unwrap() error { return f.err }

func failf(code int, format string, args ...any) error {
	return &commandError{code: code, err: fmt.Errorf(format, args...)}
}

// failWithAdvice is fail for an error whose text says what the user can do.
func failWithAdvice(code int, format string, args ...any) error {
	return &commandError{code: code, err: fmt.Errorf(format, args...), hasAdvice: true}
}

// gapsError returns the failure of a command that could not read n parts of its source.
func gapsError(n int) error {
	return failf(exitGaps, "%s of the source could not be read, see above; all else is published", progress.Count(n, "part"))
}

func (p *program) run(ctx context.Context, args []string) int {
	if len(args) > 0 {
		switch args[0] {
		case "sync", "watch":
			return p.runSync(ctx, args[0] == "watch", args[1:])
		case "relay":
			return p.runRelay(ctx, args[1:])
		case "dump":
			return p.runDump(ctx, args[1:])
		case "help", "version":
			if len(args) == 1 && looksLikeCommand(args[0]) {
				args = []string{"-" + args[0]}
			}
		}
	}
	cfg, err := parseArgs(args, p.env)
	switch {
	case err != nil:
		return p.reportParseError(err, cfg.flags, help)
	case cfg.version:
		fmt.Fprintln(p.stdout, build.Line("rspublish"))
		return exitOK
	}

	bar := p.newProgressReport(cfg)
	r := &publication{program: p, cfg: cfg, bar: bar}
	defer r.close()
	err = r.run(ctx)
	bar.Clear()
	if err == nil {
		p.summarize(cfg, r)
		return exitOK
	}

	code := exitCode(err)
	if ctx.Err() != nil {
		code, err = exitInterrupted, errors.New("interrupted")
	}
	fmt.Fprintf(p.stderr, "rspublish: %v\n", err)
	for _, line := range r.resumeAdvice(err) {
		fmt.Fprintf(p.stderr, "rspublish: %s\n", line)
	}
	return code
}

// reportParseError ends a command whose command line asks for help or is wrong.
func (p *program) reportParseError(err error, flags *flag.FlagSet, help string) int {
	if !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintf(p.stderr, "rspublish: %v\n%s -h explains everything.\n", err, flags.Name())
		return exitUsage
	}
	fmt.Fprint(p.stdout, help, "\nFlags\n")
	flags.VisitAll(func(f *flag.Flag) {
		if value, text := flag.UnquoteUsage(f); text != "" {
			text = strings.TrimPrefix(text, value+": ")
			fmt.Fprintf(p.stdout, "  -%-17s %s\n", strings.TrimSpace(f.Name+" "+value), text)
		}
	})
	fmt.Fprint(p.stdout, exitCodes)
	return exitOK
}

// newProgressReport returns the report of a command. It warns first if the token travels without
// encryption.
func (p *program) newProgressReport(cfg *config) *report {
	bar := &report{Line: progress.Line{W: p.stderr, Terminal: p.terminal, Quiet: cfg.quiet, Now: p.now}}
	if cfg.tokenExposed {
		bar.Note("rspublish: warning: the token travels unencrypted to %s; use https", cfg.hub)
	}
	return bar
}

// finish ends a command that can simply be run again. lasting means that the command runs
// until it is interrupted, and that it has done its work until then.
func (p *program) finish(ctx context.Context, err error, continuous bool) int {
	switch {
	case err == nil, ctx.Err() != nil && continuous:
		return exitOK
	case ctx.Err() != nil:
		err = failf(exitInterrupted, "interrupted; run the same command again to go on")
	}
	fmt.Fprintf(p.stderr, "rspublish: %v\n", err)
	return exitCode(err)
}

func exitCode(err error) int {
	if f, ok := errors.AsType[*commandError](err); ok {
		return f.code
	}
	return exitInput
}

func (p *program) summarize(cfg *config, r *publication) {
	switch {
	case cfg.json && cfg.check:
		printJSON(p.stdout, map[string]any{"checked": r.total})
	case cfg.json:
		printJSON(p.stdout, struct {
			Set       string `json:"set"`
			Published int    `json:"published"`
			Already   int    `json:"already"` // how many of these were published before this run
			Cursor    string `json:"cursor,omitempty"`
		}{cfg.set, r.total, r.already, r.cursor})
	case cfg.quiet:
	case cfg.check:
		fmt.Fprintf(p.stdout, "checked %s\n", progress.Count(r.total, "change"))
	default:
		fmt.Fprintf(p.stdout, "published %s to %s", progress.Count(r.total, "change"), cfg.set)
		if r.cursor != "" {
			fmt.Fprintf(p.stdout, ", cursor %s", r.cursor)
		}
		if r.already > 0 {
			fmt.Fprintf(p.stdout, " (%d already there)", r.already)
		}
		fmt.Fprintln(p.stdout)
	}
}
