package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/rshub/rshub/client"
	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/mirror"
	"github.com/rshub/rshub/internal/mirror/filename"
	"github.com/rshub/rshub/internal/mirror/home"
	"github.com/rshub/rshub/internal/mirror/hubmirror"
	"github.com/rshub/rshub/internal/progress"
	"github.com/rshub/rshub/internal/source/discovery"
)

// sourceTimeout is how long the mirror of a set waits for an unresponsive source, while others may wait
// for it. It tries again later.
const sourceTimeout = time.Minute

// A setsError reports that sets failed. Their errors were already printed.
type setsError struct{ code int } // highest exit code of a set

func (e *setsError) Error() string { return "some sets failed" }

// runAll mirrors all sets of a hub until ctx is canceled. With -once, it returns when all mirrors
// have caught up.
func (p *program) runAll(ctx context.Context) (err error) {
	p.makeClients()
	h, err := home.Open(p.dir, p.adopt)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, h.Close()) }()
	if err := p.saveAllSettings(ctx, h); err != nil {
		return err
	}
	var mu sync.Mutex
	code := exitOK
	mirrors, err := hubmirror.New(h, hubmirror.Options{
		Hub: p.settings.URL, Client: p.clientOptions(), Prefix: p.settings.Prefix, PollInterval: p.every,
		Parallel: p.parallel, Once: p.once, Timeout: p.retry,
		Dir:  func(set string) string { return p.forSet(set).dir },
		Open: p.openSet,
		Find: func(ctx context.Context, set string) (*discovery.Source, error) { return p.forSet(set).findSource(ctx) },
		OnError: func(set string, err error, wait time.Duration) {
			s := p.forSet(set)
			n := s.reportError(ctx, err)
			mu.Lock()
			defer mu.Unlock()
			if code = max(code, n); wait > 0 {
				s.note("retrying in %v", wait.Round(time.Second))
			}
		},
		Logf: p.note,
	})
	if err != nil {
		return err
	}
	var copies sync.WaitGroup
	defer copies.Wait()
	copying, stop := context.WithCancel(ctx)
	defer stop()
	copies.Go(func() { // for audits
		h.ServeCopies(copying, func(dir string) error { return h.CopyTo(dir, false) }, p.note)
	})
	totals, err := mirrors.Run(ctx)
	if err != nil || !p.once {
		return err
	}
	if err := p.summarizeAll(totals); err != nil {
		return err
	}
	missing := mirrors.Missing()
	for _, set := range slices.Sorted(maps.Keys(missing)) {
		code = max(code, exitDifferences)
		p.report.Error("rsmirror: set %s: could not fetch %s; the next run will retry", set, progress.Count(missing[set], "resource"))
	}
	if code == exitOK {
		return nil
	}
	return &setsError{code}
}

// saveAllSettings stores the settings. If they are new, it first checks that URL names a hub.
func (p *program) saveAllSettings(ctx context.Context, h *home.Home) error {
	_, known, err := h.Settings()
	if err == nil && !known {
		_, err = p.listSets(ctx)
		if refused, ok := errors.AsType[*client.RefusedError](err); ok && refused.Status == http.StatusUnauthorized && p.token == "" {
			err = fmt.Errorf("%w; set RSMIRROR_TOKEN or -token-file to a token", err)
		} else if ok || errors.Is(err, client.ErrNotHub) {
			err = fmt.Errorf("list the sets of %s: %w; HUB must be the URL of an rshub, such as https://hub.example.org", p.settings.URL, err)
		}
	}
	if err != nil {
		return err
	}
	return h.SaveSettings(p.settings)
}

// listSets returns the names of all sets of the hub. It gives up on an unresponsive hub as findSource
// does.
func (p *program) listSets(ctx context.Context) (map[string]bool, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	o := p.clientOptions()
	if p.once || p.audit {
		o, _ = mirror.LimitOutage(o, p.retry, cancel)
	}
	c, err := client.New(p.settings.URL, o)
	if err != nil {
		return nil, &mirror.SourceError{Err: err}
	}
	return hubmirror.ListSets(ctx, c)
}

// forSet returns the program for one of the sets. It shares the limits of requests, and the report.
func (p *program) forSet(set string) *program {
	cfg := *p.config
	cfg.dir = filepath.Join(p.dir, filename.Segment(set))
	cfg.settings.All, cfg.settings.URL = false, feed.Base(p.settings.URL).Topic(set)
	if !p.once && !p.audit {
		cfg.retry = min(p.retry, sourceTimeout)
	}
	s := *p
	s.config, s.set = &cfg, set
	return &s
}

// openSet opens the mirror of a set.
func (p *program) openSet(set string) (_ *hubmirror.Set, err error) {
	s := p.forSet(set)
	h, err := home.Open(s.dir, s.adopt)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, h.Close())
		}
	}()
	if err := h.SaveSettings(s.settings); err != nil {
		return nil, err
	}
	sink, err := s.sink(h)
	if err != nil {
		return nil, err
	}
	source := discovery.HubSource(feed.Base(p.settings.URL), set)
	return &hubmirror.Set{Home: h, Sink: sink, Mirror: mirror.New(h, source, sink, s.mirrorOptions())}, nil
}

// summarizeAll prints the sums of all mirrors after -once.
func (p *program) summarizeAll(t hubmirror.Totals) (err error) {
	s := p.newSummary(t.Files, t.Bytes, t.Missing)
	p.report.Clear()
	switch {
	case p.json:
		err = json.NewEncoder(p.stdout).Encode(struct {
			Sets   int `json:"sets"`
			Failed int `json:"failed"`
			summary
		}{t.Sets, t.Failed, s})
	case !p.quiet:
		_, err = fmt.Fprintf(p.stdout, "%s, %v; %d failed\n", progress.Count(t.Sets, "set"), s, t.Failed)
	}
	if err != nil {
		return fmt.Errorf("write the summary: %w", err)
	}
	return nil
}
