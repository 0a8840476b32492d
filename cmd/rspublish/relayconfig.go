package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/rshub/rshub/internal/setting"
	"github.com/rshub/rshub/source/harvest/oaipmh"
	"github.com/rshub/rshub/source/reconcile"
	"github.com/rshub/rshub/source/relay"
)

// leastEvery is the least time between two looks, to spare other people's servers.
const leastEvery = time.Second

// relayConfig is what the command line and the environment say to relay.
type relayConfig struct {
	config
	what string // the URL of the source

	once  bool
	every time.Duration
	full  time.Duration
	state string

	oai       bool
	prefix    string // metadataPrefix
	setSpec   string
	loc       string
	maxDelete reconcile.Bound
}

// parseRelay reads the command line of relay, after that word. It returns flag.ErrHelp
// for -h.
func parseRelay(args []string, env func(string) string) (*relayConfig, error) {
	cfg := new(relayConfig)
	var tokenFile, maxDelete string
	fs := cfg.flags(env, &tokenFile, &maxDelete)
	if err := setting.ParseFlags(fs, args); err != nil {
		return nil, err
	}
	switch rest := fs.Args(); {
	case len(rest) == 0:
		return nil, errors.New("which source? rspublish relay -set NAME URL")
	case len(rest) > 1 && strings.HasPrefix(rest[1], "-"):
		return nil, fmt.Errorf("write flags before the URL: %s stands after it", rest[1])
	case len(rest) > 1:
		return nil, errors.New("one source at a time: a set has one source")
	case !strings.HasPrefix(rest[0], "https://") && !strings.HasPrefix(rest[0], "http://"):
		return nil, errors.New("the source must be a URL that begins with https:// or http://; rspublish sync takes files and directories")
	default:
		var err error
		if cfg.what, err = cfg.asks(rest[0], env("RSPUBLISH_SOURCE_USER")); err != nil {
			return nil, err
		}
	}
	switch {
	case cfg.every < leastEvery:
		return nil, fmt.Errorf("-every must be %v or longer", leastEvery)
	case cfg.full <= 0:
		return nil, errors.New("-full must be longer than 0")
	case cfg.retry < 0:
		return nil, errors.New("-retry must not be negative")
	}
	if err := oaipmh.Template(cfg.loc).Check(); err != nil {
		return nil, fmt.Errorf("-loc: %w", err)
	}
	return cfg, cfg.destination(maxDelete, &cfg.maxDelete, tokenFile, env("RSPUBLISH_TOKEN"))
}

// flags returns the flags of the command.
func (c *relayConfig) flags(env func(string) string, tokenFile, maxDelete *string) *flag.FlagSet {
	fs := flag.NewFlagSet("rspublish relay", flag.ContinueOnError)
	fs.SetOutput(io.Discard)
	fs.StringVar(&c.hub, "hub", orElse(env("RSPUBLISH_HUB"), "http://127.0.0.1:8080"), "")
	fs.StringVar(&c.set, "set", env("RSPUBLISH_SET"), "")
	fs.StringVar(tokenFile, "token-file", "", "")
	setting.DurationVar(fs, &c.retry, "retry", 10*time.Minute, "")
	fs.BoolVar(&c.quiet, "q", false, "")
	fs.BoolVar(&c.json, "json", false, "")
	fs.BoolVar(&c.once, "once", false, "")
	setting.DurationVar(fs, &c.every, "every", 15*time.Minute, "")
	setting.DurationVar(fs, &c.full, "full", relay.DefaultFull, "")
	fs.StringVar(&c.state, "state", "", "")
	fs.BoolVar(&c.oai, "oai", false, "")
	fs.StringVar(&c.prefix, "prefix", "", "")
	fs.StringVar(&c.setSpec, "oai-set", "", "")
	fs.StringVar(&c.loc, "loc", "", "")
	fs.StringVar(maxDelete, "max-delete", "", "")
	return fs
}

// isOAI reports whether a flag says that the source speaks OAI-PMH.
func (c *relayConfig) isOAI() bool {
	return c.oai || c.prefix != "" || c.setSpec != "" || c.loc != ""
}
