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

// config has the settings from the command line and the environment.
type config struct {
	flags        *flag.FlagSet
	hub, set     string
	tokenFile    string
	token        string
	tokenExposed bool            // the token would be sent unencrypted to another machine
	login        *loginTransport // credentials for the source; nil if none
	key          string
	retry        time.Duration
	again        bool
	check        bool
	allowEmpty   bool
	quiet        bool
	json         bool
	version      bool
	changes      []resourcesync.Change // values of -created, -updated and -deleted, in order
	files        []string
}

// parseArgs parses the command line. It returns flag.ErrHelp for -h.
func parseArgs(args []string, env func(string) string) (*config, error) {
	cfg := new(config)
	cfg.defineFlags("rspublish", env)
	fs := cfg.flags
	fs.StringVar(&cfg.key, "key", "", "`KEY`: name of this run, for one input; within a day, an input is published once per key")
	fs.BoolVar(&cfg.again, "again", false, "publish files again even if they were published within a day")
	fs.BoolVar(&cfg.check, "check", false, "validate all inputs; send nothing")
	fs.BoolVar(&cfg.allowEmpty, "allow-empty", false, "accept inputs without changes; by default they are errors, because a failed export leaves an empty file")
	fs.BoolVar(&cfg.version, "version", false, "print version and build information")
	for _, change := range []resourcesync.ChangeType{resourcesync.Created, resourcesync.Updated, resourcesync.Deleted} {
		fs.Func(string(change), "`URI`: publish this change; may be repeated", func(loc string) error {
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

// defineFlags defines the flags of all commands that publish to a hub.
func (c *config) defineFlags(command string, env func(string) string) {
	fs := flag.NewFlagSet(command, flag.ContinueOnError)
	fs.SetOutput(io.Discard)
	fs.StringVar(&c.hub, "hub", cmp.Or(env("RSPUBLISH_HUB"), "http://127.0.0.1:8080"), "`URL`: URL of the hub (default: RSPUBLISH_HUB, else http://127.0.0.1:8080)")
	fs.StringVar(&c.set, "set", env("RSPUBLISH_SET"), "`NAME`: name of the set (default: RSPUBLISH_SET)")
	fs.StringVar(&c.tokenFile, "token-file", "", "`FILE`: file with the bearer token (default: the token in RSPUBLISH_TOKEN)")
	setting.DurationVar(fs, &c.retry, "retry", 10*time.Minute, "`DURATION`: how long to retry while the hub is unreachable or busy (default 10m; 0 disables retries)")
	fs.BoolVar(&c.quiet, "q", false, "print only errors")
	fs.BoolVar(&c.json, "json", false, "print summaries as JSON")
	c.flags = fs
}

// defineMaxDelete defines the flag -max-delete, which sets bound.
func (c *config) defineMaxDelete(bound *reconcile.Bound) {
	c.flags.Func("max-delete", "`BOUND`: maximum number of deletions within a day: a number, a share such as 20%, or all (default: ten or 10%)", func(s string) (err error) {
		*bound, err = reconcile.ParseBound(s)
		return err
	})
}

// checkArguments validates the files and changes to publish, and the flags that depend on them.
func (c *config) checkArguments() error {
	stdin := 0
	for i, file := range c.files {
		switch {
		case file == "":
			return errors.New("file name must not be empty")
		case file == "-":
			stdin++
		case file[0] == '-' && i > 0 && looksLikeCommand(c.files[0]):
			return fmt.Errorf("no such command or file %s; the commands are sync, watch, relay and dump", c.files[0])
		case file[0] == '-':
			return fmt.Errorf("flag %s must be before the files; for a file of that name, use ./%[1]s", file)
		}
	}
	switch {
	case stdin > 1:
		return errors.New("standard input can be read only once")
	case len(c.files) == 0 && len(c.changes) == 0:
		return errors.New("nothing to publish; want files, - for standard input, or -created, -updated or -deleted")
	case len(c.files) > 0 && len(c.changes) > 0:
		return errors.New("want either files or -created, -updated and -deleted, not both")
	case c.key != "" && (len(c.key) > 200 || strings.ContainsFunc(c.key, func(r rune) bool { return r <= ' ' || r > '~' || r == '"' })):
		return errors.New("-key must be at most 200 ASCII characters without blanks and quotes")
	}
	return nil
}

// looksLikeCommand reports whether s is a word of lower-case letters that is not a file.
func looksLikeCommand(s string) bool {
	_, err := os.Stat(s)
	return err != nil && !strings.ContainsFunc(s, func(r rune) bool { return r < 'a' || r > 'z' })
}

// checkTarget validates the set and the URL of the hub, and reads the token.
func (c *config) checkTarget(env func(string) string) (err error) {
	switch {
	case c.set == "":
		return errors.New("missing set; use -set NAME or RSPUBLISH_SET")
	case c.retry < 0:
		return errors.New("-retry must not be negative")
	}
	if err := feed.CheckSet(c.set); err != nil {
		return err
	}
	if _, err := client.New(c.hub, client.Options{}); err != nil {
		return fmt.Errorf("-hub: %w", err)
	}
	c.hub = strings.TrimRight(c.hub, "/") // state files identify the hub by this URL
	if c.token, err = setting.Token(c.tokenFile, env("RSPUBLISH_TOKEN")); err != nil {
		return err
	}
	if u, err := url.Parse(c.hub); err == nil && c.token != "" {
		ip := net.ParseIP(u.Hostname())
		c.tokenExposed = u.Scheme == "http" && u.Hostname() != "localhost" && (ip == nil || !ip.IsLoopback())
	}
	return nil
}
