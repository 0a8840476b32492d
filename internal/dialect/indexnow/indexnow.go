// Package indexnow reports changes to search engines by the IndexNow protocol
// (https://www.indexnow.org/documentation).
//
// It is an outlet of the delivery engine: package callback batches the changes, and tries again
// until the search engine has accepted them.
package indexnow

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"time"

	"github.com/rshub/rshub/callback/outlet"
	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/outbound"
	"github.com/rshub/rshub/internal/problem"
	"github.com/rshub/rshub/resourcesync"
)

// Form is the Form of subscriptions whose changes go to search engines.
const Form = "indexnow"

// Every is the least time between two deliveries: engines answer 429 to those who send more.
const Every = time.Minute

// NewFormat returns what of a batch is delivered, and how: each loc, in angle brackets, on a line
// of its own. Requests are made with client, which must keep to the rules for addresses, as
// outbound.Client does.
func NewFormat(client http.RoundTripper) *outlet.Format {
	return &outlet.Format{
		Batch: &feed.Format{MediaType: "application/json", Append: func(dst []byte, b *feed.Batch, _ string) []byte {
			for i := range b.Entries {
				dst = append(append(append(dst, '<'), b.Entries[i].Change.Loc...), ">\n"...)
			}
			return dst
		}},
		Head:  func(*feed.Batch) []byte { return nil },
		Begin: []byte("<"), End: []byte(">\n"),
		Outlet: &engines{client},
	}
}

// A Place is where a search engine is told of changes, as the description of a set says it: the
// URL of the engine, with the parameters key and keyLocation.
type Place struct {
	Endpoint    string // the URL without the two parameters
	Key         string
	KeyLocation string // the URL of a text file with the key, at the site that has the resources
	Host        string // of the site
	Prefix      string // what each loc begins with: the folder of the text file (section "Option 2")
}

var keys = regexp.MustCompile(`^[0-9A-Za-z-]{8,128}$`)

// ParsePlace reads a URL such as
// https://api.indexnow.org/indexnow?key=KEY&keyLocation=https://example.org/KEY.txt.
// An error is a *resourcesync.Error, and says which part is wrong.
func ParsePlace(text string) (Place, error) {
	u, err := url.Parse(text)
	if err != nil || u.Host == "" || u.User != nil {
		return Place{}, resourcesync.Invalidf("indexnow is the URL of a search engine, such as https://api.indexnow.org/indexnow?key=KEY&keyLocation=https://example.org/KEY.txt")
	}
	q := u.Query()
	p := Place{Key: q.Get("key"), KeyLocation: q.Get("keyLocation")}
	if !keys.MatchString(p.Key) {
		return p, resourcesync.Invalidf("indexnow: key=%s: a key is 8 to 128 letters, digits and dashes", resourcesync.Shorten(p.Key))
	}
	file, err := url.Parse(p.KeyLocation)
	if err != nil || file.Scheme != "https" && file.Scheme != "http" || file.Host == "" || file.User != nil || file.RawQuery != "" {
		return p, resourcesync.Invalidf("indexnow: keyLocation=%s: it is the URL of a text file with the key, at the site that has the resources", resourcesync.Shorten(p.KeyLocation))
	}
	p.Host = file.Host
	file.Path, file.RawPath, file.Fragment = file.Path[:strings.LastIndexByte(file.Path, '/')+1], "", ""
	p.Prefix = file.String()
	if file.Path == "" {
		p.Prefix += "/"
	}
	q.Del("key")
	q.Del("keyLocation")
	u.RawQuery = q.Encode()
	p.Endpoint = u.String()
	return p, nil
}

// engines are search engines.
type engines struct{ client http.RoundTripper }

// timeout bounds a request.
const timeout = 30 * time.Second

// Deliver POSTs the URLs of the changes, each once. 200 and 202 mean that the engine has taken
// them. Everything else is tried again, so that a key that was wrong can be put right.
func (o *engines) Deliver(ctx context.Context, d *outlet.Delivery) outlet.Verdict {
	p, err := ParsePlace(d.To.Callback)
	if err != nil {
		return outlet.Verdict{Decision: outlet.Over, Error: err.Error(), Outcome: outbound.Other}
	}
	body, err := json.Marshal(struct {
		Host        string   `json:"host"`
		Key         string   `json:"key"`
		KeyLocation string   `json:"keyLocation"`
		URLs        []string `json:"urlList"`
	}{p.Host, p.Key, p.KeyLocation, locs(d.Body)})
	if err != nil {
		return outlet.Verdict{Decision: outlet.Over, Error: err.Error(), Outcome: outbound.Other}
	}
	ctx, peer := outbound.WithPeer(ctx, d.To.By)
	status, after, err := o.do(ctx, http.MethodPost, p.Endpoint, body, nil)
	if err != nil {
		return outlet.Unanswered(err, outlet.Again, peer)
	}
	place, why := peer.AddressKey(), ""
	switch status {
	case http.StatusOK, http.StatusAccepted:
		return outlet.Verdict{Decision: outlet.Done, Status: status, Outcome: outbound.Success, Place: place}
	case http.StatusForbidden:
		why = "the search engine did not find the key at " + p.KeyLocation
	case http.StatusUnprocessableEntity:
		why = "the search engine says that the URLs are not below " + p.Prefix + ", or that the key is another one"
	case http.StatusTooManyRequests:
		why = "the search engine wants fewer requests"
		after = max(after, Every)
	default:
		why = "the search engine has not taken the URLs"
	}
	f := outbound.StatusFailure(why, status)
	return outlet.Verdict{Decision: outlet.Again, After: after, Status: status, Error: f.Text, Outcome: f.Outcome, Place: place}
}

// locs returns the URLs in a body, each once.
func locs(body [][]byte) []string {
	var all []string
	seen := map[string]bool{}
	for line := range bytes.Lines(bytes.Join(body, nil)) {
		loc := string(bytes.TrimSuffix(bytes.TrimPrefix(line, []byte("<")), []byte(">\n")))
		if !seen[loc] {
			seen[loc] = true
			all = append(all, loc)
		}
	}
	return all
}

// Confirm looks whether the key is where the search engine will look for it.
func (o *engines) Confirm(ctx context.Context, q *outlet.Question) outlet.Verdict {
	p, err := ParsePlace(q.Request.Callback)
	if err != nil {
		return outlet.Verdict{Decision: outlet.Over, Error: err.Error(), Outcome: outbound.Other}
	}
	var text []byte
	ctx, peer := outbound.WithPeer(ctx, q.Request.By)
	status, _, err := o.do(ctx, http.MethodGet, p.KeyLocation, nil, &text)
	if err != nil {
		return outlet.Unanswered(err, outlet.Again, peer)
	}
	v := outlet.Verdict{Decision: outlet.Again, Status: status, Place: peer.AddressKey()}
	switch {
	case status != http.StatusOK:
		f := outbound.StatusFailure("the file with the key cannot be read at "+p.KeyLocation, status)
		v.Error, v.Outcome = f.Text, f.Outcome
	case strings.TrimSpace(strings.TrimPrefix(string(text), "\ufeff")) != p.Key:
		v.Error, v.Outcome = "the file at "+p.KeyLocation+" has another text than the key", outbound.Other
	default:
		v.Decision, v.Outcome = outlet.Done, outbound.Success
	}
	return v
}

// Deny tells nobody: a search engine need not know that no more is sent.
func (o *engines) Deny(context.Context, *outlet.Denial) outlet.Verdict {
	return outlet.Verdict{Decision: outlet.Done, Outcome: outbound.Success}
}

// do makes a request. It reads the answer into text, at most a few hundred bytes, unless that is
// nil.
func (o *engines) do(ctx context.Context, method, target string, body []byte, text *[]byte) (status int, after time.Duration, err error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, method, target, bytes.NewReader(body))
	if err != nil {
		return 0, 0, fmt.Errorf("ask a search engine: %w", err)
	}
	r.Header.Set("User-Agent", outbound.UserAgent)
	if body != nil {
		r.Header.Set("Content-Type", "application/json; charset=utf-8")
	}
	resp, err := o.client.RoundTrip(r)
	if err != nil {
		return 0, 0, err
	}
	defer outbound.Drain(resp, cancel)
	if text != nil {
		*text, err = io.ReadAll(io.LimitReader(resp.Body, 512))
	}
	return resp.StatusCode, problem.RetryAfter(resp.Header, time.Now()), err
}
