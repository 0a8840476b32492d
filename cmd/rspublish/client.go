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

// newSet returns the set of the hub, for the commands that compare it with a source.
func (p *program) newSet(cfg *config, prefix string, note func(string, ...any)) (*reconcile.Set, error) {
	c, err := p.newClient(cfg, note)
	return &reconcile.Set{Client: c, Name: cfg.set, Prefix: prefix, Keys: "sync-"}, err
}

// newGetter returns a getter of the source's documents. Before it tries again, it calls note.
func (p *program) newGetter(cfg *config, note func(string, ...any)) *harvest.Getter {
	return &harvest.Getter{
		Client: cfg.sourceClient(), UserAgent: userAgent(), Robots: true, Now: p.now,
		Note: func(err error, wait time.Duration) {
			note("rspublish: %v; asking again in %s", err, wait.Round(time.Second))
		},
	}
}

// newClient returns a client of the hub. Before the client tries again, it calls note
// with the error.
func (p *program) newClient(cfg *config, note func(string, ...any)) (*client.Client, error) {
	patience := cfg.retry
	if patience == 0 {
		patience = -1
	}
	c, err := client.New(cfg.hub, client.Options{
		Token:     cfg.token,
		UserAgent: userAgent(),
		Patience:  patience,
		Now:       p.now,
		Sleep:     p.sleep,
		Note: func(err error, wait time.Duration) {
			note("rspublish: %v; trying again in %s", err, wait.Round(100*time.Millisecond))
		},
	})
	if err != nil {
		return nil, failf(exitUsage, "%w", err)
	}
	return c, nil
}

// explainError gives an error of the hub's client its exit code, and says what the user can do.
func (c *config) explainError(err error) error {
	refused, _ := errors.AsType[*client.Refused](err)
	unavailable, _ := errors.AsType[*client.Unavailable](err)
	tooMany, _ := errors.AsType[*reconcile.TooMany](err)
	switch {
	case tooMany != nil:
		return failf(exitTooManyDeletions, "%w: -max-delete does not allow that, so nothing of it was published. Is the source whole? Then run the command again with -max-delete %d (or a share such as 50%%, or all)", tooMany, tooMany.Most())
	case errors.Is(err, feed.ErrNoInventory):
		return failf(exitRefused, "the hub does not keep what the set %s holds, so nothing can be compared with it: PUT /sets/%[1]s {\"inventory\":\"on\"}, or RSHUB_INVENTORY=on at the hub", c.set)
	case errors.Is(err, feed.ErrGone):
		return failf(exitUnavailable, "the hub's log has gone on too far while it was compared: %w", err)
	case unavailable != nil && unavailable.Lasting:
		return failf(exitUnavailable, "%w", err)
	case unavailable != nil:
		return failf(exitUnavailable, "%w (-retry %s)", err, c.retry)
	case errors.Is(err, client.ErrNoHub):
		return failf(exitRefused, "%w", err)
	case refused == nil:
		return err
	case refused.Location != "":
		return failf(exitRefused, "%w; if that is the hub, give it as -hub", err)
	case refused.Status == http.StatusNotFound && !strings.Contains(refused.Type, "/problems/"):
		return failf(exitRefused, "%w; is %s the hub?", err, c.hub)
	case refused.Status == http.StatusUnauthorized && c.token == "":
		return failf(exitRefused, "%w; give a token in RSPUBLISH_TOKEN or -token-file", err)
	case refused.Status == http.StatusForbidden:
		return failf(exitRefused, "%w; to publish, a token needs publish:%s, and to compare follow:%[2]s", err, c.set)
	}
	return failf(exitRefused, "%w", err)
}

// isTemporary reports whether an error of the hub may be gone at a later try.
func isTemporary(err error) bool {
	u, _ := errors.AsType[*client.Unavailable](err)
	return u != nil && !u.Lasting || errors.Is(err, feed.ErrGone)
}

// refusalReason returns the detail of a refusal without the entry and the line, which the hub
// counts within the batch.
func refusalReason(r *client.Refused) string {
	location := (&resourcesync.Error{Entry: r.Entry, Line: r.Line, Loc: r.Loc}).Error()
	return strings.TrimPrefix(r.Detail, location)
}
