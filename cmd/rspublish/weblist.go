package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/rshub/rshub/client"
	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/inventory/audit"
	"github.com/rshub/rshub/inventory/digest"
	"github.com/rshub/rshub/resourcesync"
	"github.com/rshub/rshub/source/harvest"
	"github.com/rshub/rshub/source/reconcile"
	"github.com/rshub/rshub/source/relay"
)

// A weblist is the list at a URL, and the set that it is compared with. It remembers from
// one run to the next what both were like, so that nothing is compared when neither has
// changed.
type weblist struct {
	*site
	lister *harvest.Lister
	cfg    *syncConfig
	path   string // of the file that remembers; empty: nothing is remembered
	today  time.Time

	was, now remembered
	first    *audit.Look // the first look at the hub in this run
	same     bool        // neither the list nor the hub has changed
	failed   bool        // the list could not be read
}

// A remembered is what a weblist remembers.
type remembered struct {
	Version  int          `json:"version"` // rememberedVersion
	Options  string       `json:"options"` // the flags by which list and hub were compared
	At       time.Time    `json:"at"`      // when they were
	List     string       `json:"list"`    // the URL of the list
	Seen     harvest.Seen `json:"seen"`    // its documents
	Sum      string       `json:"sum"`     // of what the list said
	Cursor   string       `json:"cursor"`  // of the hub's log; empty: others published meanwhile
	Listed   uint64       `json:"listed"`
	Unknown  int          `json:"unknown"`
	Complete bool         `json:"complete"`
}

const rememberedVersion = 1

// openList returns the list at the URL, and what to call when it is needed no more.
func (s *syncing) openList() (l *weblist, done func(), err error) {
	l = &weblist{cfg: s.cfg, today: s.now(), lister: &harvest.Lister{
		Getter: &harvest.Getter{
			Client: s.cfg.server(), UserAgent: agent(), Robots: true,
			Note: func(err error, wait time.Duration) {
				s.bar.Note("rspublish: %v; asking again in %s", err, wait.Round(time.Second))
			},
		},
		Odd: func(document string, mistake *resourcesync.Error) { s.bar.Note("rspublish: %s: %v", document, mistake) },
	}}
	l.now = remembered{Version: rememberedVersion, Options: fmt.Sprintf("%q %v %v", s.cfg.prefix, s.cfg.unknown, s.cfg.noLastmod), At: l.today}
	if s.cfg.dry {
		return l, func() {}, nil
	}
	dir, done, err := s.openState()
	if err != nil || dir == "" {
		return l, done, err
	}
	l.path = filepath.Join(dir, "list.json")
	b, err := os.ReadFile(l.path)
	if err == nil {
		err = json.Unmarshal(b, &l.was)
	}
	age := l.today.Sub(l.was.At)
	if err != nil || l.was.Version != rememberedVersion || age < 0 || age > relay.DefaultFull { // servers that say unchanged are not believed for ever
		l.was = remembered{}
	}
	return l, done, nil
}

// resources lists the resources.
func (l *weblist) resources(ctx context.Context) iter.Seq2[*feed.Entry, error] {
	return func(yield func(*feed.Entry, error) bool) {
		at, err := l.find(ctx)
		if err != nil {
			l.failed = true
			yield(nil, err)
			return
		}
		l.now.List, l.now.Seen = at, harvest.Seen{}
		if l.unmoved() {
			l.now.Seen = l.was.Seen
		}
		for e, err := range l.lister.Since(ctx, at, &l.now.Seen) {
			l.same = errors.Is(err, harvest.ErrUnchanged)
			l.failed = err != nil && !l.same
			if !yield(e, err) {
				return
			}
		}
	}
}

// find returns the URL of the list. That of a site is found out, and remembered.
func (l *weblist) find(ctx context.Context) (string, error) {
	u, err := url.Parse(l.cfg.what)
	if err != nil || strings.Trim(u.Path, "/") != "" || u.RawQuery != "" {
		return l.cfg.what, nil
	}
	if l.was.List != "" {
		return l.was.List, nil
	}
	source, err := relay.Find(ctx, l.lister.Getter, l.cfg.what)
	if err == nil && source.ResourceList == "" {
		err = fmt.Errorf("the site has %s, and no list of all its resources: rspublish relay follows it", &source)
	}
	return source.ResourceList, err
}

// unmoved reports whether the hub is as it was left, and is compared in the same way.
func (l *weblist) unmoved() bool {
	return l.first != nil && l.was.Cursor != "" && l.was.Cursor == l.first.Cursor.String() && l.was.Complete == l.first.Complete && l.was.Options == l.now.Options
}

// Differences compares nothing, and returns harvest.ErrUnchanged, if the list and the hub
// are as they were at the end of the run before.
func (l *weblist) Differences(ctx context.Context, tally reconcile.Tally, own client.Own, look func(audit.Look)) iter.Seq2[audit.Difference, error] {
	return l.site.Differences(ctx, func(ctx context.Context) (digest.Tally, error) {
		t, err := tally(ctx)
		if err != nil {
			return t, err
		}
		l.now.Sum = fmt.Sprintf("%s %d", t.Digest(digest.ByContent), t.Count)
		if l.same = l.unmoved() && l.was.Sum == l.now.Sum; l.same {
			return t, harvest.ErrUnchanged
		}
		return t, nil
	}, own, func(k audit.Look) {
		if l.first == nil {
			l.first = &k
		}
		look(k)
	})
}

// end takes the outcome of a sync, and remembers it.
func (l *weblist) end(r reconcile.Result, err error) (reconcile.Result, error) {
	switch {
	case l.same:
		r = reconcile.Result{Listed: l.was.Listed, Unknown: l.was.Unknown, Complete: l.was.Complete, Cursor: l.first.Cursor}
		l.now.Cursor, l.now.Sum, l.now.At = l.was.Cursor, l.was.Sum, l.was.At
		err = nil
	case err != nil && l.failed && l.path != "":
		_ = os.Remove(l.path) // the list of a site may be elsewhere by now
		return r, err
	case err != nil:
		return r, err
	default:
		// The hub is as it was left only if nobody else has published meanwhile.
		begin := uint64(0)
		if l.first != nil {
			begin = l.first.Cursor.Position
		}
		if r.Cursor.Position == begin+uint64(r.Changes()) && r.Cursor.Position > 0 {
			l.now.Cursor = r.Cursor.String()
		}
	}
	l.now.Listed, l.now.Unknown, l.now.Complete = r.Listed, r.Unknown, r.Complete
	if l.path == "" {
		return r, nil
	}
	b, err := json.Marshal(&l.now)
	if err == nil {
		err = replace(l.path, append(b, '\n'))
	}
	if err != nil {
		return r, fmt.Errorf("remember the list for the next run: %w", err)
	}
	return r, nil
}
