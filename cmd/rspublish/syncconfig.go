package main

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/rshub/rshub/internal/setting"
	"github.com/rshub/rshub/internal/source/reconcile"
)

// syncConfig has the settings of rspublish sync and watch.
type syncConfig struct {
	config
	watch  bool   // whether the command is watch
	source string // a directory, a file, a URL, or - for standard input
	kind   sourceKind

	files directoryFlags
	state string

	prefix    string
	maxDelete reconcile.Bound
	unknown   bool
	noLastmod bool
	dryRun    bool
	every     time.Duration
}

// A sourceKind is the way in which a source is read.
type sourceKind int

const (
	listSource sourceKind = iota // a file or standard input
	directorySource
	webSource
)

// parseSync parses the arguments of rspublish sync or watch. It returns flag.ErrHelp for -h.
func parseSync(watch bool, args []string, env func(string) string) (*syncConfig, error) {
	cfg := &syncConfig{watch: watch}
	cfg.defineFlags(env)
	if err := setting.ParseFlags(cfg.flags, args); err != nil {
		return cfg, err
	}
	if err := cfg.setSource(cfg.flags.Args()); err != nil {
		return cfg, err
	}
	if cfg.kind == webSource {
		var err error
		if cfg.source, err = cfg.extractLogin(cfg.source, env("RSPUBLISH_SOURCE_USER")); err != nil {
			return cfg, err
		}
	}
	return cfg, cfg.checkTarget(env)
}

// defineFlags defines the flags, which set fields of c.
func (c *syncConfig) defineFlags(env func(string) string) {
	name := "rspublish sync"
	if c.watch {
		name = "rspublish watch"
	}
	c.config.defineFlags(name, env)
	c.files.defineFlags(c.flags)
	c.defineMaxDelete(&c.maxDelete)
	c.flags.StringVar(&c.state, "state", "", "`DIR`: directory for hashes and deletions between runs (default: in your cache directory)")
	if c.watch {
		setting.DurationVar(c.flags, &c.every, "every", time.Hour, "`DURATION`: interval between syncs, which detect changes that the system did not report (default 1h)")
		return
	}
	c.flags.StringVar(&c.prefix, "prefix", "", "`URI`: sync only resources whose loc starts with URI; the list must have no others")
	c.flags.BoolVar(&c.unknown, "unknown", false, "also publish resources that cannot be compared; by default they are only counted")
	c.flags.BoolVar(&c.noLastmod, "no-lastmod", false, "ignore lastmod in the list, which in some sitemaps is the time of the request")
	c.flags.BoolVar(&c.dryRun, "dry-run", false, "print the changes as JSON, one per line; publish nothing")
}

// setSource validates the source and the flags that depend on it, and detects the kind of source.
func (c *syncConfig) setSource(args []string) error {
	switch {
	case len(args) == 0 && c.watch:
		return errors.New("missing directory; want rspublish watch -set NAME -base URL DIRECTORY")
	case len(args) == 0:
		return errors.New("missing source; want a directory, a list, the URL of a list, or - for standard input")
	case len(args) > 1 && strings.HasPrefix(args[1], "-"):
		return fmt.Errorf("flag %[2]s must be before %[1]s", args[0], args[1])
	case len(args) > 1:
		return errors.New("got several sources, want one: the resources of other sources would be deleted")
	case c.watch && c.every <= 0:
		return errors.New("-every must be positive")
	}
	c.source = args[0]
	switch info, err := os.Stat(c.source); {
	case c.source == "-":
	case strings.HasPrefix(c.source, "https://"), strings.HasPrefix(c.source, "http://"):
		c.kind = webSource
	case c.files.base != "", c.watch, err == nil && info.IsDir():
		c.kind = directorySource // opening it fails if it is not a directory
	}
	switch {
	case c.kind == directorySource:
		return c.files.check()
	case c.watch:
		return fmt.Errorf("%s is not a directory; only directories can be watched", c.source)
	case c.files.base != "" || len(c.files.Exclude) > 0 || c.files.IncludeTemporary:
		return errors.New("-base, -exclude and -temporary require a directory")
	case c.kind == listSource && c.state != "":
		return errors.New("-state requires a directory or a URL")
	}
	return nil
}
