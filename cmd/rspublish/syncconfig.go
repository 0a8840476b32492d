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

// syncConfig is what the command line and the environment say to sync and
// watch.
type syncConfig struct {
	config
	watch  bool   // the command is watch
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

// A sourceKind says how a source is read.
type sourceKind int

const (
	listSource sourceKind = iota // a file or standard input
	directorySource
	webSource
)

// parseSync reads the command line of sync or watch, after that word. It
// returns flag.ErrHelp for -h.
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

func (c *syncConfig) defineFlags(env func(string) string) {
	name := "rspublish sync"
	if c.watch {
		name = "rspublish watch"
	}
	c.config.defineFlags(name, env)
	c.files.defineFlags(c.flags)
	c.defineMaxDelete(&c.maxDelete)
	c.flags.StringVar(&c.state, "state", "", "`DIR`: remembers hashes and deletions between runs (default: in your cache directory)")
	if c.watch {
		setting.DurationVar(c.flags, &c.every, "every", time.Hour, "`DURATION`: how often to sync, which finds what the system did not report (default 1h)")
		return
	}
	c.flags.StringVar(&c.prefix, "prefix", "", "`URI`: the list has only locs that begin with it; other resources of the set stay")
	c.flags.BoolVar(&c.unknown, "unknown", false, "also publish resources that cannot be compared; else they are only counted")
	c.flags.BoolVar(&c.noLastmod, "no-lastmod", false, "ignore the lastmod in the list; some sitemaps have the time of the request there")
	c.flags.BoolVar(&c.dryRun, "dry-run", false, "only print the changes, one on each line as JSON")
}

// setSource checks the source, and the flags that depend on it.
func (c *syncConfig) setSource(args []string) error {
	switch {
	case len(args) == 0 && c.watch:
		return errors.New("which directory? rspublish watch -set NAME -base URL DIRECTORY")
	case len(args) == 0:
		return errors.New("what is there to sync? name a directory, a list, the URL of a list, or - for standard input")
	case len(args) > 1 && strings.HasPrefix(args[1], "-"):
		return fmt.Errorf("write flags before %s: %s stands after it", args[0], args[1])
	case len(args) > 1:
		return errors.New("one source at a time: a set is synced with all that there is, so what a second source has would look deleted")
	case c.watch && c.every <= 0:
		return errors.New("-every must be longer than 0")
	}
	c.source = args[0]
	switch info, err := os.Stat(c.source); {
	case c.source == "-":
	case strings.HasPrefix(c.source, "https://"), strings.HasPrefix(c.source, "http://"):
		c.kind = webSource
	case c.files.base != "", c.watch, err == nil && info.IsDir():
		c.kind = directorySource // if it is none, that is found when it is opened
	}
	switch {
	case c.kind == directorySource:
		return c.files.check()
	case c.watch:
		return fmt.Errorf("%s is not a directory: only directories are watched", c.source)
	case c.files.base != "" || len(c.files.Exclude) > 0 || c.files.Temporary:
		return errors.New("-base, -exclude and -temporary are for directories")
	case c.kind == listSource && c.state != "":
		return errors.New("-state is for directories and URLs")
	}
	return nil
}
