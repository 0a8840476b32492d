// Command rspublish is the tool of a source. It publishes changes from files, standard input or
// flags to a hub, in order and only once each, even after interruptions.
//
// For a source that does not record its changes, rspublish detects them: sync compares a
// directory or a list with the hub once, watch also publishes changes as they happen, and relay
// polls a source on the web. dump packs a directory, or the records of a repository, for
// destinations that fetch everything in few requests.
//
// The packages in internal/source implement the commands. docs/sources.md and docs/relay.md
// describe them.
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

	_ "golang.org/x/crypto/x509roots/fallback" // for container images, which lack root certificates

	"github.com/rshub/rshub/internal/backoff"
	"github.com/rshub/rshub/internal/build"
	"github.com/rshub/rshub/internal/progress"
)

// Exit codes. Scripts rely on them, and the text exitCodes documents them.
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
	context.AfterFunc(ctx, stop) // a second Ctrl-C terminates the process immediately, which is safe
	os.Exit(run(ctx, os.Args[1:], os.Getenv, os.Stdin, os.Stdout, os.Stderr))
}

// run runs a command and returns its exit code. env returns the values of environment variables.
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

// A program runs the commands of rspublish. Its fields are the environment of the process, which
// tests replace.
type program struct {
	env            func(string) string
	stdin          io.Reader
	stdout, stderr io.Writer
	terminal       bool // stderr is a terminal
	cacheDir       func() (string, error)
	now            func() time.Time
	sleep          func(ctx context.Context, d time.Duration) error // waits before a retry or the next poll
}

// A commandError is an error with an exit code.
type commandError struct {
	code      int
	err       error
	hasAdvice bool // the text has the advice for the user
}

func (f *commandError) Error() string { return f.err.Error() }
func (f *commandError) Unwrap() error { return f.err }

// failf returns a commandError with a formatted text.
func failf(code int, format string, args ...any) error {
	return &commandError{code: code, err: fmt.Errorf(format, args...)}
}

// failWithAdvice is like failf, for a text that includes the advice for the user.
func failWithAdvice(code int, format string, args ...any) error {
	return &commandError{code: code, err: fmt.Errorf(format, args...), hasAdvice: true}
}

// gapsError returns the error of a command that could not read n parts of its source.
func gapsError(n int) error {
	return failf(exitGaps, "%s of the source could not be read, see above; everything else was published", progress.Count(n, "part"))
}

// run runs a command and returns its exit code.
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

// reportParseError prints the help of a command if err is flag.ErrHelp, else err. It returns the
// exit code.
func (p *program) reportParseError(err error, flags *flag.FlagSet, help string) int {
	if !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintf(p.stderr, "rspublish: %v\nRun '%s -h' for usage.\n", err, flags.Name())
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

// newProgressReport returns the progress report of a command. If the token would be sent
// unencrypted to another machine, it prints a warning.
func (p *program) newProgressReport(cfg *config) *report {
	bar := &report{Line: progress.Line{W: p.stderr, Terminal: p.terminal, Quiet: cfg.quiet, Now: p.now}}
	if cfg.tokenExposed {
		bar.Note("rspublish: warning: the token is sent unencrypted to %s; use https", cfg.hub)
	}
	return bar
}

// finish prints the error of a command that resumes when it is run again, and returns the exit
// code. If continuous, the command runs until it is interrupted, so an interruption is a success.
func (p *program) finish(ctx context.Context, err error, continuous bool) int {
	switch {
	case err == nil, ctx.Err() != nil && continuous:
		return exitOK
	case ctx.Err() != nil:
		err = failf(exitInterrupted, "interrupted; run the same command again to resume")
	}
	fmt.Fprintf(p.stderr, "rspublish: %v\n", err)
	return exitCode(err)
}

// exitCode returns the exit code of err, exitInput if it has none.
func exitCode(err error) int {
	if f, ok := errors.AsType[*commandError](err); ok {
		return f.code
	}
	return exitInput
}

// summarize prints the summary of published or checked changes.
func (p *program) summarize(cfg *config, r *publication) {
	switch {
	case cfg.json && cfg.check:
		printJSON(p.stdout, map[string]any{"checked": r.total})
	case cfg.json:
		printJSON(p.stdout, struct {
			Set       string `json:"set"`
			Published int    `json:"published"`
			Already   int    `json:"already"` // changes that were already published before this run
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
			fmt.Fprintf(p.stdout, " (%d already published)", r.already)
		}
		fmt.Fprintln(p.stdout)
	}
}
