package main

import (
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/rshub/rshub/client"
	"github.com/rshub/rshub/internal/build"
	"github.com/rshub/rshub/resourcesync"
)

// newClient returns a client of the hub. Before the client tries again, it tells note
// the error that makes it do so.
func (p *program) newClient(cfg *config, note func(string, ...any)) (*client.Client, error) {
	patience := cfg.retry
	if patience == 0 {
		patience = -1
	}
	c, err := client.New(cfg.hub, client.Options{
		Token:     cfg.token,
		UserAgent: "rspublish/" + build.Version(),
		Patience:  patience,
		Now:       p.now,
		Sleep:     p.sleep,
		Note: func(err error, wait time.Duration) {
			note("rspublish: %v; trying again in %s", err, wait.Round(100*time.Millisecond))
		},
	})
	if err != nil {
		return nil, fail(exitUsage, "%w", err)
	}
	return c, nil
}

// unsent makes a failure, with an exit code and with advice to the user, of the client's
// error for a batch that was not published.
func unsent(err error, cfg *config) error {
	if refused, ok := errors.AsType[*client.Refused](err); ok {
		switch {
		case refused.Location != "":
			refused.Detail += "; if this is the URL of the hub, use it as -hub"
		case refused.Status == http.StatusNotFound && !strings.Contains(refused.Type, "/problems/"):
			refused.Detail = strings.TrimPrefix(refused.Detail+"; is "+cfg.hub+" the hub?", "; ")
		case refused.Status == http.StatusUnauthorized && cfg.token == "":
			refused.Detail = strings.TrimPrefix(refused.Detail+"; give a token in RSPUBLISH_TOKEN or -token-file", "; ")
		}
		return &failure{code: exitRefused, err: refused}
	}
	u, ok := errors.AsType[*client.Unavailable](err)
	switch {
	case ok && u.After > 0:
		return fail(exitUnavailable, "%w; the hub says to try again in %s, which is longer than -retry %s allows", u.Err, u.After, cfg.retry)
	case ok && u.Lasting, ok && cfg.retry == 0:
		return fail(exitUnavailable, "%w", u.Err)
	case ok:
		return fail(exitUnavailable, "%w; gave up after %d tries in %s", u.Err, u.Tries, cfg.retry)
	case errors.Is(err, client.ErrNoHub):
		return fail(exitRefused, "%w", err)
	}
	return err
}

// rule returns the detail of a refusal without the entry and the line, which the hub
// counts within the batch.
func rule(r *client.Refused) string {
	where := (&resourcesync.Error{Entry: r.Entry, Line: r.Line, Loc: r.Loc}).Error()
	return strings.TrimPrefix(r.Detail, where)
}
