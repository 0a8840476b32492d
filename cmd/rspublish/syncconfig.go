package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/rshub/rshub/internal/build"
	"github.com/rshub/rshub/internal/setting"
	"github.com/rshub/rshub/source/directory"
	"github.com/rshub/rshub/source/reconcile"
)

// syncConfig is what the command line and the environment say to sync and
// watch.
type syncConfig struct {
	config
	watch bool   // the command is watch
	what  string // a directory, a file, a URL, or - for standard input
	kind  kindOfSource

	base      string
	exclude   []string
	temporary bool
	settle    time.Duration
	state     string

	prefix    string
	maxDelete reconcile.Bound
	unknown   bool
	noLastmod bool
	dry       bool
	every     time.Duration
}

// A kindOfSource says how a source is read.
type kindOfSource int

const (
	aList kindOfSource = iota // a file or standard input
	aDirectory
	aURL
)

// parseSync reads the command line of sync or watch, after that word. It
// returns flag.ErrHelp for -h.
func parseSync(watch bool, args []string, env func(string) string) (*syncConfig, error) {
	cfg := &syncConfig{watch: watch}
	var tokenFile, maxDelete string
	fs := cfg.flags(env, &tokenFile, &maxDelete)
	if err := setting.ParseFlags(fs, args); err != nil {
		return nil, err
	}
	if err := cfg.source(fs.Args()); err != nil {
		return nil, err
	}
	if cfg.kind == aURL {
		var err error
		if cfg.what, err = cfg.asks(cfg.what, env("RSPUBLISH_SOURCE_USER")); err != nil {
			return nil, err
		}
	}
	return cfg, cfg.destination(maxDelete, &cfg.maxDelete, tokenFile, env("RSPUBLISH_TOKEN"))
}

// flags returns the flags of the command.
func (c *syncConfig) flags(env func(string) string, tokenFile, maxDelete *string) *flag.FlagSet {
	name := "rspublish sync"
	if c.watch {
		name = "rspublish watch"
	}
	fs := flag.NewFlagSet(name, flag.ContinueOnError)
	fs.SetOutput(io.Discard)
	fs.StringVar(&c.hub, "hub", orElse(env("RSPUBLISH_HUB"), "http://127.0.0.1:8080"), "")
	fs.StringVar(&c.set, "set", env("RSPUBLISH_SET"), "")
	fs.StringVar(tokenFile, "token-file", "", "")
	setting.DurationVar(fs, &c.retry, "retry", 10*time.Minute, "")
	fs.BoolVar(&c.quiet, "q", false, "")
	fs.BoolVar(&c.json, "json", false, "")
	fs.StringVar(&c.base, "base", "", "")
	fs.Func("exclude", "", func(pattern string) error {
		c.exclude = append(c.exclude, pattern)
		return nil
	})
	fs.BoolVar(&c.temporary, "temporary", false, "")
	setting.DurationVar(fs, &c.settle, "settle", time.Second, "")
	fs.StringVar(&c.state, "state", "", "")
	fs.StringVar(maxDelete, "max-delete", "", "")
	if c.watch {
		setting.DurationVar(fs, &c.every, "every", time.Hour, "")
	} else {
		fs.StringVar(&c.prefix, "prefix", "", "")
		fs.BoolVar(&c.unknown, "unknown", false, "")
		fs.BoolVar(&c.noLastmod, "no-lastmod", false, "")
		fs.BoolVar(&c.dry, "dry-run", false, "")
	}
	return fs
}

// source checks the source, and the flags that depend on it.
func (c *syncConfig) source(args []string) error {
	switch {
	case len(args) == 0 && c.watch:
		return errors.New("which directory? rspublish watch -set NAME -base URL DIRECTORY")
	case len(args) == 0:
		return errors.New("what is there to sync? name a directory, a list, the URL of a list, or - for standard input")
	case len(args) > 1 && strings.HasPrefix(args[1], "-"):
		return fmt.Errorf("write flags before %s: %s stands after it", args[0], args[1])
	case len(args) > 1:
		return errors.New("one source at a time: a set is synced with all that there is, so what a second source has would look deleted")
	}
	c.what = args[0]
	switch info, err := os.Stat(c.what); {
	case c.what == "-":
	case strings.HasPrefix(c.what, "https://"), strings.HasPrefix(c.what, "http://"):
		c.kind = aURL
	case c.base != "", c.watch, err == nil && info.IsDir():
		c.kind = aDirectory // if it is none, that is found when it is opened
	}
	switch {
	case c.kind == aDirectory && c.base == "":
		return errors.New("-base URL is missing: under which URL are the files of the directory? The file a/b is at URL/a/b")
	case c.kind == aDirectory && directory.CheckBase(c.base) != nil:
		return fmt.Errorf("-base: %w", directory.CheckBase(c.base))
	case c.kind != aDirectory && c.watch:
		return fmt.Errorf("%s is not a directory: only directories are watched", c.what)
	case c.kind != aDirectory && (c.base != "" || len(c.exclude) > 0 || c.temporary):
		return errors.New("-base, -exclude and -temporary are for directories")
	case c.kind == aList && c.state != "":
		return errors.New("-state is for directories and URLs")
	case c.retry < 0 || c.settle < 0 || c.every < 0:
		return errors.New("a duration must not be negative")
	case c.watch && c.every == 0:
		return errors.New("-every must be longer than 0")
	}
	return nil
}

// agent is the program's User-Agent.
func agent() string { return "rspublish/" + build.Version() }
