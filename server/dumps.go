package server

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/rshub/rshub/dump"
	"github.com/rshub/rshub/dump/place"
	"github.com/rshub/rshub/feed"
)

// checkDumps refuses a place for content that the hub cannot use.
func (c *Config) checkDumps(refuse func(field, format string, args ...any)) {
	if c.ContentPlace == "" {
		return
	}
	if err := place.Check(c.ContentPlace); err != nil {
		refuse("ContentPlace", "cannot be used: %w", err)
	}
	if c.NoInventory {
		refuse("ContentPlace", "is for dumps and archives, which the hub makes that makes the inventory of a set, and NoInventory turns these off")
	}
	if c.DumpPackageCount > dump.MaxCount {
		refuse("DumpPackageCount", "is %d; it is 1 to %d", c.DumpPackageCount, dump.MaxCount)
	}
}

// openPlace opens the place for content; nil: there is none.
func (c *Config) openPlace() (place.Place, error) {
	if c.ContentPlace == "" {
		return nil, nil
	}
	p, err := place.Open(c.ContentPlace)
	if err != nil {
		return nil, fmt.Errorf("Config.ContentPlace: %w", err)
	}
	return p, nil
}

// newestPatience is how long a Change Dump waits for the inventory.
const newestPatience = 5 * time.Minute

// wireDumps returns what makes dumps, or nil if the hub has no place for content.
func (s *Server) wireDumps(base feed.Base, content place.Place, p *parts) *dump.Maker {
	if content == nil {
		return nil
	}
	dir := ""
	if s.config.RedisURL == "" {
		dir = s.config.Data
	}
	return dump.New(p.memory, content, base, dump.Options{
		List: func(ctx context.Context, set string, at feed.Cursor) (dump.Resources, error) {
			l, err := p.live.ResourceList(ctx, set, at)
			if err != nil {
				return nil, err
			}
			return l.Held, nil
		},
		Newest: func(ctx context.Context, set string, from feed.Cursor) (dump.Resources, func(), error) {
			h, err := p.live.State(ctx, set, from, newestPatience)
			if err != nil {
				return nil, nil, err
			}
			return h, h.Release, nil
		},
		Client: p.outbound.HTTP(), Check: p.outbound.Check, Mine: p.live.Mine, Dir: dir,
		Interval: s.config.DumpInterval, PackageBytes: s.config.DumpPackageSize, PackageCount: s.config.DumpPackageCount,
		Logger: s.log, Metrics: s.metrics,
	})
}

// hasDumps lets package documents name the dumps of a set.
func (p *parts) hasDumps(ctx context.Context, set string) (resources, changes bool, err error) {
	if p.dumps == nil {
		return false, false, nil
	}
	resources, changes, err = p.dumps.Has(ctx, set)
	if errors.Is(err, feed.ErrNoSet) {
		return false, false, nil
	}
	return resources, changes, err
}
