package indexnow

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/outbound"
	"github.com/rshub/rshub/problem"
)

// A round is what is sent of some entries of a set.
type round struct {
	cursor   feed.Cursor // of the last entry
	changes  int         // entries
	others   int         // of these, entries that have no URL that an engine could read
	requests []request   // what is left to send
}

// A request is one POST. All its URLs are of one host.
type request struct {
	host    string
	urls    []string
	refused int // how often the engine has found it malformed
}

// mostRefused is how often a request is sent that the engine finds malformed.
const mostRefused = 3

// gather makes a round of batches: of all, or of so many that it has no more than MostURLs
// URLs, and of one at least. It returns the batches that are left. A URL that is there twice is
// sent once.
func gather(batches []*feed.Batch, o *Options) (*round, []*feed.Batch) {
	r, seen, at := &round{}, map[string]bool{}, map[string]int{}
	only := ""
	if o.KeyLocation != "" {
		only, _ = hostOf(o.KeyLocation)
	}
	for len(batches) > 0 {
		b := batches[0]
		if r.changes > 0 && len(seen)+len(b.Entries) > MostURLs {
			break
		}
		batches = batches[1:]
		r.cursor, r.changes = b.Cursor, r.changes+len(b.Entries)
		for i := range b.Entries {
			loc := b.Entries[i].Change.Loc
			host, ok := hostOf(loc)
			if !ok || only != "" && host != only {
				r.others++
				continue
			}
			if seen[loc] {
				continue
			}
			seen[loc] = true
			n, known := at[host]
			if !known || len(r.requests[n].urls) == MostURLs {
				n = len(r.requests)
				at[host] = n
				r.requests = append(r.requests, request{host: host})
			}
			r.requests[n].urls = append(r.requests[n].urls, loc)
		}
	}
	return r, batches
}

// hostOf returns the host of a URL, with its port. ok is false if no engine could read it.
func hostOf(loc string) (host string, ok bool) {
	u, err := url.Parse(loc)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return "", false
	}
	return strings.ToLower(u.Host), true
}

// A Failure is an answer of an engine that is no success, or that there was none.
type Failure struct {
	Status int           // 0: there was no answer
	After  time.Duration // how long the engine asks to wait
	Text   string
}

func (f *Failure) Error() string {
	switch f.Status {
	case http.StatusForbidden:
		return f.Text + ": the engine does not find the key at the site, or another one"
	case http.StatusUnprocessableEntity:
		return f.Text + ": the URLs are not of the site that the key is for"
	case http.StatusTooManyRequests:
		return f.Text + ": there were too many requests"
	}
	return f.Text
}

// lasting reports whether only an operator can cure the failure.
func (f *Failure) lasting() bool {
	return f.Status == http.StatusForbidden || f.Status == http.StatusUnprocessableEntity
}

// maxAfter bounds how long the Retry-After of an answer counts.
const maxAfter = 24 * time.Hour

// post makes a request. The error is a *Failure.
func (o *Options) post(ctx context.Context, q *request) error {
	ctx, cancel := context.WithTimeout(ctx, o.Timeout)
	defer cancel()
	body, err := json.Marshal(struct {
		Host        string   `json:"host"`
		Key         string   `json:"key"`
		KeyLocation string   `json:"keyLocation,omitempty"`
		URLs        []string `json:"urlList"`
	}{q.host, o.Key, o.KeyLocation, q.urls})
	if err != nil {
		return fmt.Errorf("write a request to an engine: %w", err)
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, o.Endpoint, bytes.NewReader(body))
	if err != nil {
		return fmt.Errorf("write a request to an engine: %w", err)
	}
	r.Header.Set("Content-Type", "application/json; charset=utf-8")
	r.Header.Set("User-Agent", outbound.UserAgent)
	resp, err := o.Client.RoundTrip(r)
	if err != nil {
		return &Failure{Text: outbound.Explain(err).Text}
	}
	outbound.Drain(resp, cancel)
	if resp.StatusCode == http.StatusOK || resp.StatusCode == http.StatusAccepted {
		return nil
	}
	f := outbound.Answered("the answer is neither 200 nor 202", resp.StatusCode)
	return &Failure{Status: resp.StatusCode, After: min(problem.RetryAfter(resp.Header, time.Now()), maxAfter), Text: f.Text}
}
