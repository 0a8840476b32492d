package server

import (
	"context"
	"net/url"
	"regexp"
	"slices"

	"github.com/rshub/rshub/activity"
	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/indexnow"
)

// An IndexNow says of which sets search engines are told by IndexNow. Without Sets they are told
// nothing, and the rest does not count.
type IndexNow struct {
	Sets        []string
	Key         string // 8 to 128 letters, digits and hyphens
	KeyLocation string // URL of the file with the key; default: KEY.txt at the root of each host
	Endpoint    string // default: indexnow.DefaultEndpoint
}

var indexNowKey = regexp.MustCompile(`^[a-zA-Z0-9-]{8,128}$`)

// check refuses what is missing or wrong.
func (x *IndexNow) check(refuse func(field, format string, args ...any)) {
	if len(x.Sets) == 0 {
		if x.Key != "" || x.KeyLocation != "" {
			refuse("IndexNow.Sets", "is empty, and other fields of IndexNow are set")
		}
		return
	}
	if !indexNowKey.MatchString(x.Key) {
		refuse("IndexNow.Key", "is not 8 to 128 letters, digits and hyphens")
	}
	for _, f := range []struct{ field, url string }{{"KeyLocation", x.KeyLocation}, {"Endpoint", x.Endpoint}} {
		if u, err := url.Parse(f.url); f.url != "" && (err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Host == "") {
			refuse("IndexNow."+f.field, "is %q; it is a URL of HTTP", f.url)
		}
	}
	for i, set := range x.Sets {
		if err := feed.CheckSet(set); err != nil {
			refuse("IndexNow.Sets", "has a bad name: %w", err)
		}
		if slices.Contains(x.Sets[:i], set) {
			refuse("IndexNow.Sets", "has %s twice", set)
		}
	}
}

// indexNowFailure is the kind of a failed request to an engine.
const indexNowFailure = "indexnow"

// wireIndexNow returns what tells search engines of changes; nil: nothing does.
func (s *Server) wireIndexNow(ctx context.Context, store *store, p *parts) (*indexnow.Publisher, error) {
	x := &s.config.IndexNow
	if len(x.Sets) == 0 {
		return nil, nil
	}
	kept, claims, err := s.config.published(ctx, store, indexnow.Kind)
	if err != nil {
		return nil, err
	}
	return indexnow.New(x.Sets, p.hub, p.memory, kept, claims, indexnow.Options{
		Endpoint: x.Endpoint, Key: x.Key, KeyLocation: x.KeyLocation, Client: p.outbound,
		Delivered: p.activity.Delivered, Logger: s.log, Metrics: s.metrics,
		Outcome: func(set string, err error) {
			if err == nil {
				p.activity.Right(indexNowFailure, set, "")
				return
			}
			p.activity.Went(activity.Failure{Kind: indexNowFailure, Set: set, Where: x.Endpoint, Text: err.Error()})
		},
	}), nil
}
