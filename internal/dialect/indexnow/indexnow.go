// Package indexnow notifies search engines of changes by the IndexNow protocol
// (https://www.indexnow.org/documentation).
//
// It is an outlet of the delivery engine: package callback batches the changes, and retries until
// the search engine has accepted them.
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

// Form is the form of subscriptions that notify search engines.
const Form = "indexnow"

// MinInterval is the minimum time between two deliveries. Search engines answer more frequent
// requests with 429.
const MinInterval = time.Minute

// NewFormat returns the format and the outlet of deliveries. The format of a batch is one line per
// change, with its loc in angle brackets. Requests use client, which must enforce the address rules
// as outbound.Client does.
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
		Outlet: &engineOutlet{client},
	}
}

// A Target is the search engine to notify. The description of a set has it as the URL of the engine
// with the parameters key and keyLocation.
type Target struct {
	Endpoint    string // URL of the engine without the two parameters
	Key         string
	KeyLocation string // URL of a text file with the key on the site of the resources
	Host        string // host of the site
	Prefix      string // prefix of each loc: the folder of the text file (section "Option 2")
}

var keyPattern = regexp.MustCompile(`^[0-9A-Za-z-]{8,128}$`)

// ParseTarget parses a URL such as
// https://api.indexnow.org/indexnow?key=KEY&keyLocation=https://example.org/KEY.txt. An error is a
// *resourcesync.Error that names the invalid part.
func ParseTarget(text string) (Target, error) {
	u, err := url.Parse(text)
	if err != nil || u.Host == "" || u.User != nil {
		return Target{}, resourcesync.Invalidf("indexnow: invalid URL of a search engine; want one such as https://api.indexnow.org/indexnow?key=KEY&keyLocation=https://example.org/KEY.txt")
	}
	q := u.Query()
	p := Target{Key: q.Get("key"), KeyLocation: q.Get("keyLocation")}
	if !keyPattern.MatchString(p.Key) {
		return p, resourcesync.Invalidf("indexnow: invalid key %q; want 8 to 128 letters, digits and dashes", resourcesync.Shorten(p.Key))
	}
	file, err := url.Parse(p.KeyLocation)
	if err != nil || file.Scheme != "https" && file.Scheme != "http" || file.Host == "" || file.User != nil || file.RawQuery != "" {
		return p, resourcesync.Invalidf("indexnow: invalid keyLocation %q; want the URL of a text file with the key on the site of the resources", resourcesync.Shorten(p.KeyLocation))
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

// An engineOutlet delivers changes to search engines.
type engineOutlet struct{ client http.RoundTripper }

// timeout is the maximum duration of a request.
const timeout = 30 * time.Second

// Deliver posts the URLs of the changes without duplicates. 200 and 202 mean that the engine has
// accepted them. Everything else is retried, so that an operator can repair a wrong key.
func (o *engineOutlet) Deliver(ctx context.Context, d *outlet.Delivery) outlet.Verdict {
	p, err := ParseTarget(d.To.Callback)
	if err != nil {
		return outlet.Verdict{Decision: outlet.Over, Error: err.Error(), Outcome: outbound.Other}
	}
	body, err := json.Marshal(struct {
		Host        string   `json:"host"`
		Key         string   `json:"key"`
		KeyLocation string   `json:"keyLocation"`
		URLs        []string `json:"urlList"`
	}{p.Host, p.Key, p.KeyLocation, uniqueLocs(d.Body)})
	if err != nil {
		return outlet.Verdict{Decision: outlet.Over, Error: err.Error(), Outcome: outbound.Other}
	}
	ctx, peer := outbound.WithPeer(ctx, d.To.By)
	status, after, err := o.sendRequest(ctx, http.MethodPost, p.Endpoint, body, nil)
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
		why = "the search engine rejected the URLs as not below " + p.Prefix + ", or the key as wrong"
	case http.StatusTooManyRequests:
		why = "the search engine received too many requests"
		after = max(after, MinInterval)
	default:
		why = "the search engine did not accept the URLs"
	}
	f := outbound.StatusFailure(why, status)
	return outlet.Verdict{Decision: outlet.Again, After: after, Status: status, Error: f.Text, Outcome: f.Outcome, Place: place}
}

// uniqueLocs returns the URLs in a body without duplicates.
func uniqueLocs(body [][]byte) []string {
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

// Confirm checks that the key is at the URL where the search engine will look for it.
func (o *engineOutlet) Confirm(ctx context.Context, q *outlet.Question) outlet.Verdict {
	p, err := ParseTarget(q.Request.Callback)
	if err != nil {
		return outlet.Verdict{Decision: outlet.Over, Error: err.Error(), Outcome: outbound.Other}
	}
	var text []byte
	ctx, peer := outbound.WithPeer(ctx, q.Request.By)
	status, _, err := o.sendRequest(ctx, http.MethodGet, p.KeyLocation, nil, &text)
	if err != nil {
		return outlet.Unanswered(err, outlet.Again, peer)
	}
	v := outlet.Verdict{Decision: outlet.Again, Status: status, Place: peer.AddressKey()}
	switch {
	case status != http.StatusOK:
		f := outbound.StatusFailure("cannot read the key file "+p.KeyLocation, status)
		v.Error, v.Outcome = f.Text, f.Outcome
	case strings.TrimSpace(strings.TrimPrefix(string(text), "\ufeff")) != p.Key:
		v.Error, v.Outcome = "the key file "+p.KeyLocation+" does not contain the key", outbound.Other
	default:
		v.Decision, v.Outcome = outlet.Done, outbound.Success
	}
	return v
}

// Deny does nothing: a search engine need not know that deliveries stop.
func (o *engineOutlet) Deny(context.Context, *outlet.Denial) outlet.Verdict {
	return outlet.Verdict{Decision: outlet.Done, Outcome: outbound.Success}
}

// sendRequest sends a request. If text is not nil, it stores the first 512 bytes of the response
// body there.
func (o *engineOutlet) sendRequest(ctx context.Context, method, target string, body []byte, text *[]byte) (status int, after time.Duration, err error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, method, target, bytes.NewReader(body))
	if err != nil {
		return 0, 0, fmt.Errorf("create request to search engine: %w", err)
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
