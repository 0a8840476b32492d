package main

import (
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/rshub/rshub/client"
	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/build"
	"github.com/rshub/rshub/internal/source/harvest"
	"github.com/rshub/rshub/internal/source/reconcile"
	"github.com/rshub/rshub/resourcesync"
)

func userAgent() string { return "rspublish/" + build.Version() }

// newSet returns a client of the set, for the commands that compare it with a source.
func (p *program) newSet(cfg *config, prefix string, note func(string, ...any)) (*reconcile.Set, error) {
	c, err := p.newClient(cfg, note)
	return &reconcile.Set{Client: c, Name: cfg.set, Prefix: prefix, Keys: "sync-"}, err
}

// newGetter returns a getter of the source's documents. It calls note before each retry.
func (p *program) newGetter(cfg *config, note func(string, ...any)) *harvest.Getter {
	return &harvest.Getter{
		Client: cfg.sourceClient(), UserAgent: userAgent(), Robots: true, Now: p.now,
		Note: func(err error, wait time.Duration) {
			note("rspublish: %v; retrying in %s", err, wait.Round(time.Second))
		},
	}
}

// newClient returns a client of the hub. The client calls note with the error before each retry.
func (p *program) newClient(cfg *config, note func(string, ...any)) (*client.Client, error) {
	patience := cfg.retry
	if patience == 0 {
		patience = -1
	}
	c, err := client.New(cfg.hub, client.Options{
		Token:        cfg.token,
		UserAgent:    userAgent(),
		RetryTimeout: patience,
		Now:          p.now,
		Sleep:        p.sleep,
		OnRetry: func(err error, wait time.Duration) {
			note("rspublish: %v; retrying in %s", err, wait.Round(100*time.Millisecond))
		},
	})
	if err != nil {
		return nil, failf(exitUsage, "%w", err)
	}
	return c, nil
}

// explainError adds an exit code and advice for the user to an error of the hub's client.
func (c *config) explainError(err error) error {
	refused, _ := errors.AsType[*client.RefusedError](err)
	unavailable, _ := errors.AsType[*client.UnavailableError](err)
	tooMany, _ := errors.AsType[*reconcile.TooManyDeletions](err)
	switch {
	case tooMany != nil:
		return failf(exitTooManyDeletions, "%w: -max-delete does not allow the deletions, so none of these changes was published; if the source is complete, use -max-delete %d (or a share such as 50%%, or all)", tooMany, tooMany.Total())
	case errors.Is(err, feed.ErrNoInventory):
		return failf(exitRefused, "the hub has no inventory of set %s to compare with; use PUT /sets/%[1]s {\"inventory\":\"on\"}, or RSHUB_INVENTORY=on at the hub", c.set)
	case errors.Is(err, feed.ErrGone):
		return failf(exitUnavailable, "the hub's log advanced too far during the comparison: %w", err)
	case unavailable != nil && unavailable.Permanent:
		return failf(exitUnavailable, "%w", err)
	case unavailable != nil:
		return failf(exitUnavailable, "%w (-retry %s)", err, c.retry)
	case errors.Is(err, client.ErrNotHub):
		return failf(exitRefused, "%w", err)
	case refused == nil:
		return err
	case refused.Location != "":
		return failf(exitRefused, "%w; if that is the hub, use it for -hub", err)
	case refused.Status == http.StatusNotFound && !strings.Contains(refused.Type, "/problems/"):
		return failf(exitRefused, "%w; check whether %s is the URL of the hub", err, c.hub)
	case refused.Status == http.StatusUnauthorized && c.token == "":
		return failf(exitRefused, "%w; set RSPUBLISH_TOKEN or -token-file to a token", err)
	case refused.Status == http.StatusForbidden:
		return failf(exitRefused, "%w; a token needs publish:%s to publish, and follow:%[2]s to compare", err, c.set)
	}
	return failf(exitRefused, "%w", err)
}

// isTemporary reports whether a retry may succeed after an error of the hub.
func isTemporary(err error) bool {
	u, _ := errors.AsType[*client.UnavailableError](err)
	return u != nil && !u.Permanent || errors.Is(err, feed.ErrGone)
}

// refusalReason returns the detail of a refusal without its entry and line, because the hub
// counts those within the batch.
func refusalReason(r *client.RefusedError) string {
	location := (&resourcesync.Error{Entry: r.Entry, Line: r.Line, Loc: r.Loc}).Error()
	return strings.TrimPrefix(r.Detail, location)
}
