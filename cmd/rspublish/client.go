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

// newClient returns a client of the hub. Before the client tries again, it calls note
// with the error.
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

// unsent converts the client's error for an unpublished batch into a failure with an
// exit code and advice to the user.
func unsent(err error, cfg *config) error {
	if refused, ok := errors.AsType[*client.Refused](err); ok {
		switch {
		case refused.Location != "":
			refused.Detail += "; if that is the hub, give it as -hub"
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
		return fail(exitUnavailable, "%w; it asks to come again in %s, and -retry %s does not allow that", u.Err, u.After, cfg.retry)
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
