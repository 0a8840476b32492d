package main

import (
	"context"
	"fmt"
	"iter"
	"net/url"
	"strings"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/source/harvest"
	"github.com/rshub/rshub/internal/source/reconcile"
	"github.com/rshub/rshub/internal/source/relay"
	"github.com/rshub/rshub/resourcesync"
)

// webListing returns the listing at the URL. If the URL is a site, it discovers the site's list.
func (s *syncRun) webListing() reconcile.Listing {
	lister := &harvest.Lister{
		Getter: s.newGetter(&s.cfg.config, s.bar.Note),
		Note:   func(document string, mistake *resourcesync.Error) { s.bar.Note("rspublish: %s: %v", document, mistake) },
	}
	return func(ctx context.Context) iter.Seq2[*feed.Entry, error] {
		at, err := s.findList(ctx, lister.Getter)
		if err != nil {
			return func(yield func(*feed.Entry, error) bool) { yield(nil, err) }
		}
		s.listVersion = harvest.Seen{}
		return relay.Gaps(lister.Since(ctx, at, &s.listVersion))
	}
}

// findList returns the URL of the list: the source itself, or the list of a site.
func (s *syncRun) findList(ctx context.Context, getter *harvest.Getter) (string, error) {
	u, err := url.Parse(s.cfg.source)
	if err != nil || strings.Trim(u.Path, "/") != "" || u.RawQuery != "" {
		return s.cfg.source, nil
	}
	source, err := relay.FindList(ctx, getter, s.cfg.source)
	if err == nil && source.ResourceList == "" {
		err = fmt.Errorf("the site has %s, but no list of all its resources; use rspublish relay", &source)
	}
	return source.ResourceList, err
}
