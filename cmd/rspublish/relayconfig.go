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

// minEvery is the least time between two looks, to spare other people's servers.
const minEvery = time.Second

type relayConfig struct {
	config
	source string // the URL of the source

	once  bool
	every time.Duration
	full  time.Duration
	state string

	oai        bool
	repository relay.Repository // what the flags say of it
	maxDelete  reconcile.Bound
}

// parseRelay reads the command line of relay, after that word. It returns flag.ErrHelp
// for -h.
func parseRelay(args []string, env func(string) string) (*relayConfig, error) {
	cfg := new(relayConfig)
	cfg.defineFlags(env)
	if err := setting.ParseFlags(cfg.flags, args); err != nil {
		return cfg, err
	}
	switch rest := cfg.flags.Args(); {
	case len(rest) == 0:
		return cfg, errors.New("which source? rspublish relay -set NAME URL")
	case len(rest) > 1 && strings.HasPrefix(rest[1], "-"):
		return cfg, fmt.Errorf("write flags before the URL: %s stands after it", rest[1])
	case len(rest) > 1:
		return cfg, errors.New("one source at a time: a set has one source")
	case !strings.HasPrefix(rest[0], "https://") && !strings.HasPrefix(rest[0], "http://"):
		return cfg, errors.New("the source must be a URL that begins with https:// or http://; rspublish sync takes files and directories")
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
		return cfg, errors.New("-full must be longer than 0")
	}
	if err := cfg.repository.Loc.Check(); err != nil {
		return cfg, fmt.Errorf("-loc: %w", err)
	}
	return cfg, cfg.checkTarget(env)
}

func (c *relayConfig) defineFlags(env func(string) string) {
	c.config.defineFlags("rspublish relay", env)
	fs := c.flags
	c.defineMaxDelete(&c.maxDelete)
	fs.BoolVar(&c.once, "once", false, "look once and end, for cron")
	setting.DurationVar(fs, &c.every, "every", 15*time.Minute, "`DURATION`: how often to look (default 15m), sooner or later by a fifth")
	setting.DurationVar(fs, &c.full, "full", relay.DefaultFull, "`DURATION`: how often to compare everything (default 24h)")
	fs.StringVar(&c.state, "state", "", "`FILE`: keeps the state between two looks (default: in your cache directory)")
	fs.BoolVar(&c.oai, "oai", false, "the URL is a base URL of OAI-PMH; -prefix, -oai-set and -loc say so, too")
	defineRecordFlags(fs, &c.repository.Prefix, &c.repository.Set)
	fs.StringVar((*string)(&c.repository.Loc), "loc", "", "`TEMPLATE`: the URL of a record's resource, with {identifier} or {local}; or dc:identifier")
}

// defineRecordFlags defines the flags that choose records of a repository.
func defineRecordFlags(fs *flag.FlagSet, prefix, set *string) {
	fs.StringVar(prefix, "prefix", "", "`NAME`: the metadataPrefix (default oai_dc)")
	fs.StringVar(set, "oai-set", "", "`SPEC`: only the records of a set of the repository")
}

// isOAI reports whether a flag says that the source speaks OAI-PMH.
func (c *relayConfig) isOAI() bool {
	return c.oai || c.repository != (relay.Repository{})
}
