package main

import (
	"errors"
	"flag"
	"fmt"
	"strings"
	"time"

	"github.com/rshub/rshub/internal/setting"
	"github.com/rshub/rshub/internal/source/reconcile"
	"github.com/rshub/rshub/internal/source/relay"
)

// minEvery is the minimum of -every. It protects the servers of sources.
const minEvery = time.Second

// relayConfig has the settings of rspublish relay.
type relayConfig struct {
	config
	source string // URL of the source

	once  bool
	every time.Duration
	full  time.Duration
	state string

	oai        bool
	repository relay.Repository // settings of the repository from flags
	maxDelete  reconcile.Bound
}

// parseRelay parses the arguments of rspublish relay. It returns flag.ErrHelp for -h.
func parseRelay(args []string, env func(string) string) (*relayConfig, error) {
	cfg := new(relayConfig)
	cfg.defineFlags(env)
	if err := setting.ParseFlags(cfg.flags, args); err != nil {
		return cfg, err
	}
	switch rest := cfg.flags.Args(); {
	case len(rest) == 0:
		return cfg, errors.New("missing source; want rspublish relay -set NAME URL")
	case len(rest) > 1 && strings.HasPrefix(rest[1], "-"):
		return cfg, fmt.Errorf("flag %s must be before the URL", rest[1])
	case len(rest) > 1:
		return cfg, errors.New("got several sources, want one: a set has a single source")
	case !strings.HasPrefix(rest[0], "https://") && !strings.HasPrefix(rest[0], "http://"):
		return cfg, errors.New("source must be a URL that starts with https:// or http://; for files and directories, use rspublish sync")
	default:
		var err error
		if cfg.source, err = cfg.extractLogin(rest[0], env("RSPUBLISH_SOURCE_USER")); err != nil {
			return cfg, err
		}
	}
	switch {
	case cfg.every < minEvery:
		return cfg, fmt.Errorf("-every must be %v or longer", minEvery)
	case cfg.full <= 0:
		return cfg, errors.New("-full must be positive")
	}
	if err := cfg.repository.Loc.Check(); err != nil {
		return cfg, fmt.Errorf("-loc: %w", err)
	}
	return cfg, cfg.checkTarget(env)
}

// defineFlags defines the flags, which set fields of c.
func (c *relayConfig) defineFlags(env func(string) string) {
	c.config.defineFlags("rspublish relay", env)
	fs := c.flags
	c.defineMaxDelete(&c.maxDelete)
	fs.BoolVar(&c.once, "once", false, "poll once and exit, for cron")
	setting.DurationVar(fs, &c.every, "every", 15*time.Minute, "`DURATION`: interval between polls, randomized by up to a fifth (default 15m)")
	setting.DurationVar(fs, &c.full, "full", relay.DefaultCompareEvery, "`DURATION`: interval between comparisons of all resources (default 24h)")
	fs.StringVar(&c.state, "state", "", "`FILE`: state between polls and runs (default: in your cache directory)")
	fs.BoolVar(&c.oai, "oai", false, "the URL is a base URL of OAI-PMH; implied by -prefix, -oai-set and -loc")
	defineRecordFlags(fs, &c.repository.Prefix, &c.repository.Set)
	fs.StringVar((*string)(&c.repository.Loc), "loc", "", "`TEMPLATE`: URL of a record's resource, with {identifier} or {local}; or dc:identifier")
}

// defineRecordFlags defines the flags that select the records of a repository.
func defineRecordFlags(fs *flag.FlagSet, prefix, set *string) {
	fs.StringVar(prefix, "prefix", "", "`NAME`: metadataPrefix of the records (default oai_dc)")
	fs.StringVar(set, "oai-set", "", "`SPEC`: only the records in this set of the repository")
}

// isOAI reports whether the flags imply that the source is an OAI-PMH repository.
func (c *relayConfig) isOAI() bool {
	return c.oai || c.repository != (relay.Repository{})
}
