// Package oaipmh harvests repositories that speak OAI-PMH 2.0 (the Open Archives Initiative
// Protocol for Metadata Harvesting): it reads which records they have, and which have changed.
//
// It follows the protocol, but trusts repositories as little as possible: a list that ends early,
// repeats itself or is shorter than announced never counts as complete. Package relay decides when
// to harvest.
package oaipmh

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"github.com/rshub/rshub/internal/source/harvest"
	"github.com/rshub/rshub/resourcesync"
)

// A Granularity is the resolution of the datestamps of a repository.
type Granularity bool

// The granularities of the protocol (section 3.3.1).
const (
	Days    Granularity = false
	Seconds Granularity = true
)

const (
	dayLayout    = "2006-01-02"
	secondLayout = "2006-01-02T15:04:05Z"
)

// Step is the time between two datestamps that differ.
func (g Granularity) Step() time.Duration {
	if g == Seconds {
		return time.Second
	}
	return 24 * time.Hour
}

func (g Granularity) format(t time.Time) string {
	if g == Seconds {
		return t.UTC().Format(secondLayout)
	}
	return t.UTC().Format(dayLayout)
}

// The support of deleted records that a repository declares (section 2.5.1).
const (
	DeletedNo         = "no"         // none: deleted records vanish
	DeletedTransient  = "transient"  // deleted records are listed for a while
	DeletedPersistent = "persistent" // deleted records are listed forever
)

// An Identity is the self-description of a repository (section 4.2).
type Identity struct {
	Name        string      `json:"name"`
	BaseURL     string      `json:"baseURL"`
	Earliest    string      `json:"earliest"` // datestamp; no record is older
	Deleted     string      `json:"deleted"`  // DeletedNo, DeletedTransient or DeletedPersistent
	Granularity Granularity `json:"seconds"`
}

// An Error is an error response of a repository (section 3.6).
type Error struct {
	Code string // such as badArgument
	Text string // for people
}

// Error returns code and text.
func (e *Error) Error() string {
	if e.Text == "" {
		return "the repository answers " + resourcesync.Shorten(e.Code)
	}
	return fmt.Sprintf("the repository answers %s: %s", resourcesync.Shorten(e.Code), resourcesync.Shorten(e.Text))
}

// The codes that a harvester handles.
const (
	badArgument        = "badArgument"
	badVerb            = "badVerb"
	badResumptionToken = "badResumptionToken"
	noRecordsMatch     = "noRecordsMatch"
)

// hasCode reports whether an error is an Error with a code.
func hasCode(err error, code string) bool {
	e, ok := errors.AsType[*Error](err)
	return ok && e.Code == code
}

// A Repository is a client of one repository. It is not safe for concurrent use.
type Repository struct {
	Getter *harvest.Getter
	URL    string // the base URL

	noIdentifiers bool // whether the repository does not support ListIdentifiers
}

// partTries is how often an unreadable part is requested, for instance a truncated one. A part may
// be requested again with the same token (section 3.5).
const partTries = 3

// request sends a request and reads the response. It retries if the response is not a complete
// document of the protocol. If whole is true, it retains the text of each record.
func (r *Repository) request(ctx context.Context, arguments url.Values, whole bool) (p *part, err error) {
	u, err := url.Parse(r.URL)
	if err != nil {
		return nil, errors.New("invalid base URL of the repository") // err contains the URL
	}
	q := u.Query()
	for key, values := range arguments {
		q[key] = values
	}
	u.RawQuery = q.Encode()
	what := "the answer to " + arguments.Get("verb")
	for try := 1; ; try++ {
		if p, err = r.requestPart(ctx, what, u, whole); err == nil && p.err != nil {
			return p, p.err
		}
		if err == nil || try == partTries || ctx.Err() != nil {
			return p, err
		}
		if _, malformed := errors.AsType[*resourcesync.Error](err); !malformed && !errors.Is(err, errCut) {
			return nil, err // the Getter has already retried
		}
	}
}

var errCut = errors.New("the answer was cut off")

// requestPart requests a response and reads it, and retries while the repository is busy or
// unreachable. Many repositories send an error of the protocol with an HTTP status such as 422 or
// 404: then the error counts, not the status.
func (r *Repository) requestPart(ctx context.Context, what string, u *url.URL, whole bool) (p *part, err error) {
	var bad error
	err = r.Getter.Retry(ctx, func() error {
		a, err := r.Getter.Once().GetAny(ctx, what, u.String())
		if err != nil {
			return err
		}
		defer a.Close()
		if p, bad = readPart(a.Body, whole); a.Status != http.StatusOK && (bad != nil || p.err == nil) {
			return a.StatusError(what)
		}
		return nil
	})
	switch {
	case err != nil:
		return nil, err
	case bad == nil:
		return p, nil
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	}
	if e, ok := errors.AsType[*resourcesync.Error](bad); ok {
		return nil, resourcesync.Wrap(fmt.Sprintf("%s (%s)", what, harvest.Plain(u)), e)
	}
	return nil, fmt.Errorf("%s (%s): %w: %w", what, harvest.Plain(u), errCut, bad)
}

// Identify requests the Identity of a repository. The error wraps a *resourcesync.Error if the URL
// does not speak OAI-PMH.
func (r *Repository) Identify(ctx context.Context) (*Identity, error) {
	p, err := r.request(ctx, url.Values{"verb": {"Identify"}}, false)
	if err != nil {
		return nil, err
	}
	if p.identity == nil {
		return nil, resourcesync.Invalidf("the answer to Identify has no description of the repository")
	}
	return p.identity, nil
}
