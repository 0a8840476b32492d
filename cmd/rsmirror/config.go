package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"net/url"
	"strings"
	"time"

	"github.com/rshub/rshub/internal/idn"
	"github.com/rshub/rshub/internal/mirror/home"
	"github.com/rshub/rshub/internal/outbound"
	"github.com/rshub/rshub/internal/setting"
	"github.com/rshub/rshub/internal/source/reconcile"
	"github.com/rshub/rshub/resourcesync"
)

// config has the settings from the command line and the environment.
type config struct {
	settings home.Settings
	dir      string

	once, adopt bool
	every       time.Duration

	audit                      bool
	quick, repair, removeExtra bool
	name                       string // name of the mirror in reports to the hub

	retry             time.Duration
	parallel, perHost int
	maxSize           setting.Size
	maxDelete         reconcile.Bound
	duplicatesFirst   bool
	public            bool
	token             string
	contentTokens     map[string]string // tokens for contents by origin
	quiet, json       bool
	version           bool
}

// parseArgs parses the command line. It returns flag.ErrHelp for -h.
func parseArgs(args []string, env func(string) string) (*config, error) {
	cfg := &config{maxSize: 10 << 30}
	if len(args) > 0 && args[0] == "audit" {
		cfg.audit, args = true, args[1:]
	}
	if len(args) == 1 && (args[0] == "help" || args[0] == "version") && !cfg.audit {
		args = []string{"-" + args[0]}
	}
	var tokenFile string
	fs := cfg.newFlagSet(&tokenFile)
	if err := setting.ParseFlags(fs, args); err != nil || cfg.version {
		return cfg, err
	}
	if err := cfg.checkArguments(fs.Args()); err != nil {
		return nil, err
	}
	var err error
	cfg.token, err = setting.Token(tokenFile, env("RSMIRROR_TOKEN"))
	return cfg, err
}

// newFlagSet returns the flags of the command, which set fields of c and tokenFile.
func (c *config) newFlagSet(tokenFile *string) *flag.FlagSet {
	name := "rsmirror"
	if c.audit {
		name = "rsmirror audit"
	}
	fs := flag.NewFlagSet(name, flag.ContinueOnError)
	fs.SetOutput(io.Discard)
	setting.DurationVar(fs, &c.retry, "retry", 10*time.Minute, "")
	fs.IntVar(&c.parallel, "parallel", 16, "")
	fs.IntVar(&c.perHost, "per-host", 4, "")
	fs.Func("max-size", "", func(s string) error { return c.maxSize.Decode(s) })
	fs.Func("max-delete", "", func(s string) (err error) {
		c.maxDelete, err = reconcile.ParseBound(s)
		return err
	})
	fs.BoolVar(&c.duplicatesFirst, "duplicates-first", false, "")
	fs.BoolVar(&c.public, "public", false, "")
	fs.StringVar(tokenFile, "token-file", "", "")
	fs.Func("content-token", "", c.addContentToken)
	fs.BoolVar(&c.quiet, "q", false, "")
	if c.audit {
		fs.BoolVar(&c.quick, "quick", false, "")
		fs.StringVar(&c.name, "name", "rsmirror", "")
		fs.BoolVar(&c.repair, "repair", false, "")
		fs.BoolVar(&c.removeExtra, "remove-extra", false, "")
	} else {
		fs.BoolVar(&c.once, "once", false, "")
		fs.BoolVar(&c.adopt, "adopt", false, "")
		fs.BoolVar(&c.settings.All, "all", false, "")
		fs.BoolVar(&c.json, "json", false, "")
		fs.BoolVar(&c.version, "version", false, "")
		setting.DurationVar(fs, &c.every, "every", 5*time.Minute, "")
		fs.StringVar(&c.settings.Prefix, "prefix", "", "")
		fs.Func("collection", "", func(s string) error {
			c.settings.Collection = s
			return resourcesync.CheckURI("collection", s)
		})
		fs.StringVar(&c.settings.Names.Strip, "strip", "", "")
		fs.StringVar(&c.settings.To, "to", "", "")
	}
	return fs
}

// addContentToken parses a value of -content-token, ORIGIN=FILE, and reads the token from the
// file.
func (c *config) addContentToken(value string) error {
	origin, file, ok := strings.Cut(value, "=")
	u, err := url.Parse(origin)
	if err == nil {
		err = idn.Host(u)
	}
	if !ok || file == "" || err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" || u.User != nil || strings.Trim(u.Path, "/") != "" || u.RawQuery != "" {
		return errors.New("want https://HOST=FILE")
	}
	token, err := setting.Token(file, "")
	if err != nil {
		return err
	}
	if c.contentTokens == nil {
		c.contentTokens = map[string]string{}
	}
	c.contentTokens[outbound.Origin(u)] = token
	return nil
}

// checkArguments validates the arguments and flags, and stores the arguments in c.
func (c *config) checkArguments(args []string) error {
	want := []string{"URL", "DIR"}
	switch {
	case c.audit:
		want = want[1:]
	case c.settings.All:
		want[0] = "HUB"
	}
	for i, a := range args {
		if i > 0 && strings.HasPrefix(a, "-") {
			return fmt.Errorf("flag %[2]s must be before %[1]s", strings.Join(want, " and "), a)
		}
	}
	switch {
	case len(args) != len(want):
		return fmt.Errorf("want arguments %s after the flags", strings.Join(want, " and "))
	case c.retry <= 0, !c.audit && c.every <= 0:
		return errors.New("-retry and -every must be positive durations, such as 90s or 2h")
	case c.parallel < 1 || c.parallel > 1000 || c.perHost < 1 || c.perHost > 1000:
		return errors.New("-parallel and -per-host must be between 1 and 1000")
	case c.maxSize == 0:
		return errors.New("-max-size must be positive")
	case c.removeExtra && !c.repair:
		return errors.New("-remove-extra requires -repair")
	}
	if c.dir = args[len(args)-1]; c.dir == "" {
		return errors.New("DIR is empty")
	}
	if c.audit {
		return nil
	}
	return c.setTarget(args[0])
}

// setTarget validates the source and the destination of a mirror, and stores the settings.
func (c *config) setTarget(address string) error {
	u, err := url.Parse(address)
	if err == nil {
		err = idn.Host(u)
	}
	switch {
	case err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "":
		if strings.Contains(address, "@") { // it may have a password
			address = "(not shown)"
		}
		return fmt.Errorf("URL must start with http:// or https:// and have a host; got %s", address)
	case u.User != nil:
		return errors.New("URL must not have a user or password; use a token in RSMIRROR_TOKEN or -token-file")
	}
	u.Fragment = ""
	if c.settings.All {
		if u.RawQuery != "" {
			return errors.New("HUB must be the URL of a hub, such as https://hub.example.org; got a URL with a query")
		}
		u.Path, u.RawPath, u.ForceQuery = strings.TrimRight(u.Path, "/"), strings.TrimRight(u.RawPath, "/"), false
	}
	c.settings.URL = u.String()
	if s := &c.settings.Names.Strip; *s != "" {
		if !strings.HasSuffix(*s, "/") {
			*s += "/"
		}
		if _, err := c.settings.Names.Path(*s); err != nil {
			return fmt.Errorf("-strip: %w", err)
		}
	}
	command, isCommand := strings.CutPrefix(c.settings.To, "exec:")
	switch {
	case isCommand && strings.TrimSpace(command) == "":
		return errors.New("-to exec: requires a command, such as -to 'exec:./import.sh'")
	case !isCommand && c.settings.To != "" && c.settings.To != "ndjson":
		return errors.New("-to must be ndjson or exec:COMMAND")
	case c.settings.To != "" && c.settings.All:
		return errors.New("-to cannot be used with -all; for the changes of all sets, use rshub follow -all")
	case c.settings.To != "" && c.settings.Names.Strip != "":
		return errors.New("-strip cannot be used with -to, which writes no files")
	}
	return nil
}
