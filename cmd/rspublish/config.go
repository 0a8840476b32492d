package main

import (
	"cmp"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/rshub/rshub/client"
	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/setting"
	"github.com/rshub/rshub/internal/source/reconcile"
	"github.com/rshub/rshub/resourcesync"
)

// config is what the command line and the environment ask for.
type config struct {
	flags        *flag.FlagSet
	hub, set     string
	tokenFile    string
	token        string
	tokenExposed bool            // the token would travel to another machine without encryption
	login        *loginTransport // for the source, if it needs one
	key          string
	retry        time.Duration
	again        bool
	check        bool
	allowEmpty   bool
	quiet        bool
	json         bool
	version      bool
	changes      []resourcesync.Change // of -created, -updated and -deleted, in their order
	files        []string
}

// parseArgs reads the command line. It returns flag.ErrHelp for -h.
func parseArgs(args []string, env func(string) string) (*config, error) {
	cfg := new(config)
	cfg.defineFlags("rspublish", env)
	fs := cfg.flags
	fs.StringVar(&cfg.key, "key", "", "`KEY`: the name of this run, for one input; the same input with the same key is published once a day")
	fs.BoolVar(&cfg.again, "again", false, "publish files again although they were published within a day")
	fs.BoolVar(&cfg.check, "check", false, "only read and check everything; send nothing")
	fs.BoolVar(&cfg.allowEmpty, "allow-empty", false, "take an input without any change; an export that failed leaves an empty file")
	fs.BoolVar(&cfg.version, "version", false, "print the version")
	for _, change := range []resourcesync.ChangeType{resourcesync.Created, resourcesync.Updated, resourcesync.Deleted} {
		fs.Func(string(change), "`URI`: publish this one change; may be repeated", func(loc string) error {
			cfg.changes = append(cfg.changes, resourcesync.Change{Loc: loc, Change: change})
			return nil
		})
	}
	if err := setting.ParseFlags(fs, args); err != nil || cfg.version {
		return cfg, err
	}
	cfg.files = fs.Args()
	if err := cfg.checkArguments(); err != nil || cfg.set == "" && cfg.check {
		return cfg, err
	}
	return cfg, cfg.checkTarget(env)
}

// defineFlags defines the flags that all commands have which publish to a hub.
func (c *config) defineFlags(command string, env func(string) string) {
	fs := flag.NewFlagSet(command, flag.ContinueOnError)
	fs.SetOutput(io.Discard)
	fs.StringVar(&c.hub, "hub", cmp.Or(env("RSPUBLISH_HUB"), "http://127.0.0.1:8080"), "`URL`: the hub (RSPUBLISH_HUB; default http://127.0.0.1:8080)")
	fs.StringVar(&c.set, "set", env("RSPUBLISH_SET"), "`NAME`: the set (RSPUBLISH_SET)")
	fs.StringVar(&c.tokenFile, "token-file", "", "`FILE`: holds the bearer token; without it RSPUBLISH_TOKEN does")
	setting.DurationVar(fs, &c.retry, "retry", 10*time.Minute, "`DURATION`: how long to try again while the hub is away or busy (default 10m; 0: not at all)")
	fs.BoolVar(&c.quiet, "q", false, "print nothing but errors")
	fs.BoolVar(&c.json, "json", false, "print summaries as JSON")
	c.flags = fs
}

func (c *config) defineMaxDelete(bound *reconcile.Bound) {
	c.flags.Func("max-delete", "`BOUND`: most deletions within a day: a number, a share such as 20%, or all (default: ten or 10%)", func(s string) (err error) {
		*bound, err = reconcile.ParseBound(s)
		return err
	})
}

// checkArguments checks the files and changes to publish, and the flags that depend on them.
func (c *config) checkArguments() error {
	stdin := 0
	for i, file := range c.files {
		switch {
		case file == "":
			return errors.New("a file's name is empty")
		case file == "-":
			stdin++
		case file[0] == '-' && i > 0 && looksLikeCommand(c.files[0]):
			return fmt.Errorf("there is no command and no file %s; the commands are sync, watch, relay and dump", c.files[0])
		case file[0] == '-':
			return fmt.Errorf("write flags before the files: %s stands after one (for a file of that name, write ./%[1]s)", file)
		}
	}
	switch {
	case stdin > 1:
		return errors.New("standard input can be read once only")
	case len(c.files) == 0 && len(c.changes) == 0:
		return errors.New("nothing to publish: name files, or - for standard input, or give -created, -updated or -deleted")
	case len(c.files) > 0 && len(c.changes) > 0:
		return errors.New("publish either files or the changes of -created, -updated and -deleted, not both at once")
	case c.key != "" && (len(c.key) > 200 || strings.ContainsFunc(c.key, func(r rune) bool { return r <= ' ' || r > '~' || r == '"' })):
		return errors.New("-key must be at most 200 characters of ASCII, without blanks and quotes")
	}
	return nil
}

// looksLikeCommand reports whether an argument looks like a command, and not like a file.
func looksLikeCommand(s string) bool {
	_, err := os.Stat(s)
	return err != nil && !strings.ContainsFunc(s, func(r rune) bool { return r < 'a' || r > 'z' })
}

// checkTarget checks the set's name and the hub's URL, and reads the token.
func (c *config) checkTarget(env func(string) string) (err error) {
	switch {
	case c.set == "":
		return errors.New("which set? give -set NAME or RSPUBLISH_SET")
	case c.retry < 0:
		return errors.New("-retry must not be negative")
	}
	if err := feed.CheckSet(c.set); err != nil {
		return err
	}
	if _, err := client.New(c.hub, client.Options{}); err != nil {
		return fmt.Errorf("-hub: %w", err)
	}
	c.hub = strings.TrimRight(c.hub, "/") // a state file is compared with it
	if c.token, err = setting.Token(c.tokenFile, env("RSPUBLISH_TOKEN")); err != nil {
		return err
	}
	if u, err := url.Parse(c.hub); err == nil && c.token != "" {
		ip := net.ParseIP(u.Hostname())
		c.tokenExposed = u.Scheme == "http" && u.Hostname() != "localhost" && (ip == nil || !ip.IsLoopback())
	}
	return nil
}
