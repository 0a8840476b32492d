package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/setting"
	"github.com/rshub/rshub/resourcesync"
	"github.com/rshub/rshub/source/reconcile"
)

// config is what the command line and the environment ask for.
type config struct {
	hub, set   string
	token      string
	bareToken  bool   // the token would travel to another machine without encryption
	login      *login // for the source, if it needs one
	key        string
	retry      time.Duration
	again      bool
	check      bool
	allowEmpty bool
	quiet      bool
	json       bool
	version    bool
	changes    []resourcesync.Change // of -created, -updated and -deleted, in their order
	files      []string
}

// parse reads the command line. It returns flag.ErrHelp for -h.
func parse(args []string, env func(string) string) (*config, error) {
	cfg := new(config)
	var tokenFile string
	fs := flag.NewFlagSet("rspublish", flag.ContinueOnError)
	fs.SetOutput(io.Discard)
	fs.StringVar(&cfg.hub, "hub", orElse(env("RSPUBLISH_HUB"), "http://127.0.0.1:8080"), "")
	fs.StringVar(&cfg.set, "set", env("RSPUBLISH_SET"), "")
	fs.StringVar(&tokenFile, "token-file", "", "")
	fs.StringVar(&cfg.key, "key", "", "")
	setting.DurationVar(fs, &cfg.retry, "retry", 10*time.Minute, "")
	fs.BoolVar(&cfg.again, "again", false, "")
	fs.BoolVar(&cfg.check, "check", false, "")
	fs.BoolVar(&cfg.allowEmpty, "allow-empty", false, "")
	fs.BoolVar(&cfg.quiet, "q", false, "")
	fs.BoolVar(&cfg.json, "json", false, "")
	fs.BoolVar(&cfg.version, "version", false, "")
	for _, change := range []resourcesync.ChangeType{resourcesync.Created, resourcesync.Updated, resourcesync.Deleted} {
		fs.Func(string(change), "", func(loc string) error {
			cfg.changes = append(cfg.changes, resourcesync.Change{Loc: loc, Change: change})
			return nil
		})
	}
	if err := setting.ParseFlags(fs, args); err != nil || cfg.version {
		return cfg, err
	}
	cfg.files = fs.Args()
	if err := cfg.arguments(); err != nil {
		return nil, err
	}
	if err := cfg.target(); err != nil {
		return nil, err
	}
	return cfg, cfg.credentials(tokenFile, env("RSPUBLISH_TOKEN"))
}

func orElse(s, other string) string {
	if s == "" {
		return other
	}
	return s
}

// arguments checks the files and changes to publish, and the flags that depend on them.
func (c *config) arguments() error {
	stdin := 0
	for i, file := range c.files {
		switch {
		case file == "":
			return errors.New("a file's name is empty")
		case file == "-":
			stdin++
		case file[0] == '-' && i > 0 && isWord(c.files[0]):
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
	case c.retry < 0:
		return errors.New("-retry must not be negative")
	case c.key != "" && (len(c.key) > 200 || strings.ContainsFunc(c.key, func(r rune) bool { return r <= ' ' || r > '~' || r == '"' })):
		return errors.New("-key must be at most 200 characters of ASCII, without blanks and quotes")
	}
	return nil
}

// isWord reports whether an argument looks like a command, and not like a file.
func isWord(s string) bool {
	_, err := os.Stat(s)
	return err != nil && !strings.ContainsFunc(s, func(r rune) bool { return r < 'a' || r > 'z' })
}

// target checks the hub's URL and the set's name. It brings the URL into a canonical
// form, because a state file is compared with it.
func (c *config) target() error {
	switch {
	case c.set == "" && c.check:
		return nil
	case c.set == "":
		return errors.New("which set? give -set NAME or RSPUBLISH_SET")
	}
	if err := feed.CheckSet(c.set); err != nil {
		return err
	}
	u, err := url.Parse(c.hub)
	switch {
	case err != nil:
		return errors.New("-hub must be a URL that begins with http:// or https://") // without the text, which may hold a password
	case u.User != nil:
		return errors.New("-hub must not have a user and password: give a token in RSPUBLISH_TOKEN or -token-file")
	case u.Scheme != "http" && u.Scheme != "https":
		return fmt.Errorf("-hub must be a URL that begins with http:// or https://, not %q", c.hub)
	case u.Hostname() == "" || u.RawQuery != "" || u.Fragment != "":
		return fmt.Errorf("-hub must be a URL like https://hub.example.org, without query and fragment, not %q", c.hub)
	}
	u.Host = strings.ToLower(u.Host)
	c.hub = strings.TrimRight(u.String(), "/")
	return nil
}

// destination checks the hub and the set, reads the token, and reads -max-delete into
// bound. It is for the commands that compare a source with a set.
func (c *config) destination(maxDelete string, bound *reconcile.Bound, tokenFile, tokenEnv string) (err error) {
	if err := c.target(); err != nil {
		return err
	}
	if maxDelete != "" {
		if *bound, err = reconcile.ParseBound(maxDelete); err != nil {
			return fmt.Errorf("-max-delete: %w", err)
		}
	}
	return c.credentials(tokenFile, tokenEnv)
}

// credentials reads the token from a file or from the environment.
func (c *config) credentials(file, fromEnv string) (err error) {
	if c.token, err = setting.Token(file, fromEnv); err != nil {
		return err
	}
	if u, err := url.Parse(c.hub); err == nil && c.token != "" {
		ip := net.ParseIP(u.Hostname())
		c.bareToken = u.Scheme == "http" && u.Hostname() != "localhost" && (ip == nil || !ip.IsLoopback())
	}
	return nil
}
