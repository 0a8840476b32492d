package client_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rshub/rshub/client"
	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/problem"
	"github.com/rshub/rshub/resourcesync"
)

func TestPublish(t *testing.T) {
	s := newSite(t)
	c := newClient(t, s.URL, client.Options{RetryTimeout: -1})
	size := int64(7)
	changes := updated("urn:1", "urn:2")
	changes[1].Length, changes[1].Hash, changes[1].Attrs = &size, "md5:"+strings.Repeat("0", 32), []resourcesync.Attr{{Namespace: "urn:n", Name: "a", Value: "<ü>"}}
	for i := range 2 {
		r, err := c.Publish(t.Context(), "demo", "key", changes)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.HasPrefix(r.First, "1-") || !strings.HasPrefix(r.Cursor, "2-") || r.Set != "demo" || r.Count != 2 || r.Replayed != (i == 1) {
			t.Errorf("publish %d: got receipt %+v, want two entries from position 1, replayed %t", i, r, i == 1)
		}
	}
	if _, err := c.Publish(t.Context(), "demo", "key", changes[:1]); !errors.Is(err, feed.ErrKeyReused) {
		t.Errorf("Publish of other changes with the same key = %v, want %v", err, feed.ErrKeyReused)
	}
	for range 2 { // without a key, each call is a separate publish
		if r, err := c.Publish(t.Context(), "demo", "", changes[:1]); err != nil || r.Replayed {
			t.Errorf("Publish() = %+v, %v, want not replayed", r, err)
		}
	}
	r, err := c.PublishLines(t.Context(), "demo", "lines", []byte(`{"loc":"urn:3","change":"created"}`+"\n"), 1)
	if err != nil || r.Count != 1 {
		t.Errorf("PublishLines() = %+v, %v, want one entry", r, err)
	}
	if got := s.held(t); !slices.Equal(got, []string{"urn:1", "urn:2", "urn:1", "urn:1", "urn:3"}) {
		t.Errorf("the log has %q, want urn:1, urn:2, urn:1, urn:1 and urn:3", got)
	}
	for b, err := range c.Follow(t.Context(), "demo", "start", client.FollowOptions{}) {
		if got := b.Entries[1].Change; err != nil || *got.Length != size || got.Hash != changes[1].Hash || !slices.Equal(got.Attrs, changes[1].Attrs) {
			t.Errorf("Follow yields %+v, %v, want %+v", got, err, changes[1])
		}
		break
	}
}

func TestPublishIncremental(t *testing.T) {
	got := ""
	s := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { got = r.Header.Get("Incremental") }))
	defer s.Close()
	c := newClient(t, s.URL, client.Options{RetryTimeout: -1})
	for _, tt := range []struct {
		name    string
		publish func() (*feed.Receipt, error)
		want    string
	}{
		{"document", func() (*feed.Receipt, error) { return c.Publish(t.Context(), "demo", "", updated("urn:1")) }, ""},
		{"lines", func() (*feed.Receipt, error) {
			return c.PublishLines(t.Context(), "demo", "", []byte(`{"loc":"urn:1","change":"created"}`+"\n"), 1)
		}, "?1"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if _, err := tt.publish(); !errors.Is(err, client.ErrNotHub) {
				t.Errorf("publish = %v, want %v", err, client.ErrNotHub)
			}
			if got != tt.want {
				t.Errorf("header Incremental = %q, want %q", got, tt.want)
			}
		})
	}
}

// TestPublishInvalid checks that invalid input is not sent.
func TestPublishInvalid(t *testing.T) {
	s := newSite(t)
	c := newClient(t, s.URL, client.Options{})
	bad := updated("urn:a", "relative")
	for _, tt := range []struct {
		name, set, key string
		changes        []resourcesync.Change
		want           string
	}{
		{"invalid set name", "a/b", "", updated("urn:a"), "invalid set name"},
		{"space in key", "demo", "a b", updated("urn:a"), "one word"},
		{"newline in key", "demo", "a\nb", updated("urn:a"), "one word"},
		{"no changes", "demo", "", nil, "at least one"},
		{"invalid change", "demo", "", bad, "entry 2 (relative): loc"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := c.Publish(t.Context(), tt.set, tt.key, tt.changes)
			if !errors.Is(err, resourcesync.ErrInvalid) || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("Publish: got error %v, want ErrInvalid with %q", err, tt.want)
			}
		})
	}
	if n := len(s.received()); n > 0 {
		t.Errorf("got %d requests, want none", n)
	}
}

// problemHandler returns a handler that responds with a problem document, and a Retry-After unless
// that is empty.
func problemHandler(status int, detail, retry string) func(http.ResponseWriter, *http.Request) {
	return func(w http.ResponseWriter, r *http.Request) {
		p := problem.New(status, "test", detail)
		if retry != "" {
			p.Header = http.Header{"Retry-After": {retry}}
		}
		problem.Write(w, r, p)
	}
}

// abortHandler closes the connection without a response.
func abortHandler(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }

func TestPublishRetries(t *testing.T) {
	const first = 250 * time.Millisecond // the shortest delay
	for _, tt := range []struct {
		name   string
		answer func(http.ResponseWriter, *http.Request)
		least  time.Duration // minimum of each wait
		note   string
	}{
		{"503", problemHandler(503, "the memory is down", ""), first, ": 503 Service Unavailable (the memory is down)"},
		{"500", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(500) }, first, ": 500 Internal Server Error;"},
		{"429", problemHandler(429, "slowly", ""), first, "429"},
		{"408", problemHandler(408, "slow", ""), first, "408"},
		{"507", problemHandler(507, "full", ""), 30 * time.Second, "507 Insufficient Storage (full)"},
		{"Retry-After", problemHandler(503, "", "40"), 40 * time.Second, "in 40s"},
		{"Retry-After date", problemHandler(429, "", "Tue, 03 Feb 2026 04:09:06 GMT"), 4 * time.Minute, "in 4m0s"},
		{"no response", abortHandler, first, "cannot reach"},
		{"half a response", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "100")
			_, _ = io.WriteString(w, `{"set":"demo",`)
		}, first, "cannot reach"},
		{"half a problem", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "100")
			w.WriteHeader(400)
		}, first, "cannot reach"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s, clock := newSite(t), newClock()
			var bodies, keys []string
			s.intercept = func(n int, w http.ResponseWriter, r *http.Request) bool {
				body, _ := io.ReadAll(r.Body)
				r.Body = io.NopCloser(bytes.NewReader(body))
				bodies, keys = append(bodies, string(body)), append(keys, r.Header.Get("Idempotency-Key"))
				if n == 1 || n == 2 && tt.name != "Retry-After date" {
					tt.answer(w, r)
					return true
				}
				return false
			}
			r, err := newClient(t, s.URL, clock.options()).Publish(t.Context(), "demo", "", updated("urn:a"))
			if err != nil || r.Replayed || len(s.held(t)) != 1 {
				t.Errorf("Publish() = %+v, %v, want one change, not replayed", r, err)
			}
			if len(keys) < 2 || len(slices.Compact(bodies)) != 1 || len(slices.Compact(keys)) != 1 || len(keys[0]) < 16 {
				t.Errorf("the attempts have the keys %q and the bodies %q, want the same in all", keys, bodies)
			}
			for _, wait := range clock.waits {
				if wait < tt.least || wait > 4*tt.least {
					t.Errorf("got waits %v, want 1 to 4 times %v", clock.waits, tt.least)
				}
			}
			if notes := clock.noted(); len(notes) != len(clock.waits) || !strings.Contains(notes[0], tt.note) {
				t.Errorf("got retries %q, want %q", notes, tt.note)
			}
		})
	}
}

// TestPublishAnswerLost checks that changes are not published twice if the response is lost.
func TestPublishAnswerLost(t *testing.T) {
	s, clock := newSite(t), newClock()
	s.dropAnswer = func(n int) bool { return n < 3 }
	c := newClient(t, s.URL, clock.options())
	r, err := c.Publish(t.Context(), "demo", "", updated("urn:a", "urn:b"))
	if err != nil || r.Replayed || r.Count != 2 {
		t.Errorf("Publish() = %+v, %v, want two changes, not replayed", r, err)
	}
	if got := s.held(t); !slices.Equal(got, []string{"urn:a", "urn:b"}) || len(s.received()) != 3 {
		t.Errorf("the log has %q after %d requests, want urn:a and urn:b after 3", got, len(s.received()))
	}
}

func TestPublishGivesUp(t *testing.T) {
	for _, tt := range []struct {
		name    string
		timeout time.Duration
		retry   string
		waited  time.Duration
		after   time.Duration
		text    string
	}{
		{"default", 0, "", 10 * time.Minute, 0, "gave up after"},
		{"short timeout", 90 * time.Second, "", 90 * time.Second, 0, "gave up after"},
		{"no retries", -1, "", 0, 0, "(down)"},
		{"Retry-After too long", 0, "3600", 0, time.Hour, "1h0m0s"},
		{"Retry-After too long for the rest", 5 * time.Minute, "200", 200 * time.Second, 200 * time.Second, "3m20s"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s, clock := newSite(t), newClock()
			s.intercept = func(_ int, w http.ResponseWriter, r *http.Request) bool {
				problemHandler(503, "down", tt.retry)(w, r)
				return true
			}
			o := clock.options()
			o.RetryTimeout = tt.timeout
			_, err := newClient(t, s.URL, o).Publish(t.Context(), "demo", "", updated("urn:a"))
			u, ok := errors.AsType[*client.UnavailableError](err)
			if !ok || u.Tries != len(s.received()) || u.RetryAfter != tt.after || u.Permanent || !strings.Contains(err.Error(), tt.text) {
				t.Fatalf("Publish: got error %+v, want an UnavailableError with RetryAfter %v and %q", err, tt.after, tt.text)
			}
			if p, ok := errors.AsType[*feed.Problem](err); !ok || p.Status != 503 || p.Detail != "down" {
				t.Errorf("the error wraps the problem %+v, want 503", p)
			}
			var waited time.Duration
			for i, wait := range clock.waits {
				waited += wait
				if most := min(30*time.Second, 500*time.Millisecond<<min(i, 10)); tt.after == 0 && wait > most || tt.after == 0 && i < len(clock.waits)-1 && wait < most/2 {
					t.Errorf("wait %d = %v, want at most %v", i, wait, most)
				}
			}
			if waited != tt.waited {
				t.Errorf("waited %v, want %v", waited, tt.waited)
			}
		})
	}
}

func TestPublishRefused(t *testing.T) {
	for _, tt := range []struct {
		name   string
		answer func(w http.ResponseWriter, r *http.Request)
		want   error
		text   string
	}{
		{"entry", func(w http.ResponseWriter, r *http.Request) {
			problem.Write(w, r, &resourcesync.Error{Err: resourcesync.ErrInvalid, Entry: 3, Loc: "urn:x", Msg: "loc is not mine"})
		}, nil, "hub refused the request: 400 Bad Request: entry 3 (urn:x): loc is not mine"},
		{"forbidden", problemHandler(403, "not yours", ""), nil, "403 Forbidden: not yours"},
		{"no set", func(w http.ResponseWriter, r *http.Request) { problem.Write(w, r, feed.ErrNoSet) }, feed.ErrNoSet, "404 Not Found"},
		{"page of another server", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/html")
			w.WriteHeader(405)
			fmt.Fprint(w, "<html>\x1b[31m")
		}, nil, "hub refused the request: 405 Method Not Allowed"},
		{"redirect", func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "https://other.example.org/", http.StatusTemporaryRedirect)
		}, nil, "307 Temporary Redirect: redirect to https://other.example.org/"},
	} {
		for _, before := range []bool{false, true} { // whether an attempt with an unknown result precedes
			t.Run(fmt.Sprint(tt.name, before), func(t *testing.T) {
				s, clock := newSite(t), newClock()
				s.intercept = func(n int, w http.ResponseWriter, r *http.Request) bool {
					if before && n == 1 {
						abortHandler(w, r)
					}
					tt.answer(w, r)
					return true
				}
				_, err := newClient(t, s.URL, clock.options()).Publish(t.Context(), "demo", "", updated("urn:a"))
				refused, ok := errors.AsType[*client.RefusedError](err)
				if !ok || refused.Uncertain != before || !strings.Contains(err.Error(), tt.text) || tt.want != nil && !errors.Is(err, tt.want) {
					t.Fatalf("Publish: got error %+v, want a RefusedError with %q, uncertain %t", err, tt.text, before)
				}
				if (refused.Location != "") != (tt.name == "redirect") {
					t.Errorf("Location = %q, want one only for a redirect", refused.Location)
				}
				if len(clock.waits) != len(s.received())-1 || (len(clock.waits) == 1) != before {
					t.Errorf("got %d requests and waits %v, want one retry only after an unknown result", len(s.received()), clock.waits)
				}
			})
		}
	}
}

// TestPublishPermanent checks that failures that retrying cannot fix are not retried.
func TestPublishPermanent(t *testing.T) {
	s := newSite(t)
	secure := httptest.NewUnstartedServer(nil)
	secure.Config.ErrorLog = log.New(io.Discard, "", 0)
	secure.StartTLS()
	defer secure.Close()
	serve := func(text string) string {
		other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, text) }))
		t.Cleanup(other.Close)
		return other.URL
	}
	for _, tt := range []struct{ name, url, want string }{
		{"certificate", secure.URL, "certificate"},
		{"scheme", strings.Replace(s.URL, "http:", "https:", 1), "HTTP response to HTTPS client"},
		{"page", serve("<html>welcome"), "response is not from a hub"},
		{"JSON", serve(`{"ok":true}`), "response is not from a hub"},
		{"invalid cursor", serve(`{"set":"demo","cursor":"here","count":1}`), "response is not from a hub"},
		{"another set", serve(`{"set":"other","cursor":"1-1","count":1}`), "response is not from a hub"},
		{"another count", serve(`{"set":"demo","cursor":"3-3","count":3}`), "accepted 3 changes, want 1"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			clock := newClock()
			_, err := newClient(t, tt.url, clock.options()).Publish(t.Context(), "demo", "", updated("urn:a"))
			if err == nil || !strings.Contains(err.Error(), tt.want) || len(clock.waits) > 0 {
				t.Errorf("Publish: got error %v after waits %v, want %q without waits", err, clock.waits, tt.want)
			}
			u, unavailable := errors.AsType[*client.UnavailableError](err)
			if errors.Is(err, client.ErrNotHub) == unavailable || unavailable && !(u.Permanent && u.Unsent) {
				t.Errorf("Publish: got error %+v, want ErrNotHub or a permanent, unsent UnavailableError", err)
			}
		})
	}
}

func TestPublishCanceled(t *testing.T) {
	for _, when := range []string{"during a request", "during a wait"} {
		t.Run(when, func(t *testing.T) {
			s, clock := newSite(t), newClock()
			ctx, cancel := context.WithCancel(t.Context())
			s.intercept = func(_ int, w http.ResponseWriter, r *http.Request) bool {
				if when == "during a request" {
					_, _ = io.ReadAll(r.Body) // otherwise the server does not notice that the client disconnects
					cancel()
					<-r.Context().Done()
				}
				w.WriteHeader(503)
				return true
			}
			o := clock.options()
			o.Sleep = func(ctx context.Context, _ time.Duration) error {
				cancel()
				return ctx.Err()
			}
			if _, err := newClient(t, s.URL, o).Publish(ctx, "demo", "", updated("urn:a")); err != context.Canceled {
				t.Errorf("Publish: got error %v, want %v", err, context.Canceled)
			}
			if n := len(s.received()); n != 1 {
				t.Errorf("got %d requests, want 1", n)
			}
		})
	}
}

// A roundTripper is a transport without a network, so that time can be fake.
type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// TestClock checks that by default a client waits in real time.
func TestClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tries := 0
		c := newClient(t, "https://hub.example.org", client.Options{HTTP: &http.Client{Transport: roundTripper(func(r *http.Request) (*http.Response, error) {
			tries++
			w := httptest.NewRecorder()
			switch {
			case tries == 1: // no response
				<-r.Context().Done()
				return nil, r.Context().Err()
			case tries < 4:
				problemHandler(503, "", "10")(w, r)
			default:
				_ = json.NewEncoder(w).Encode(feed.NewReceipt("demo", feed.Cursor{Position: 1, Micros: 1}, 1, true))
			}
			return w.Result(), nil
		})}})
		start := time.Now()
		if _, err := c.Publish(t.Context(), "demo", "", updated("urn:a")); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(start); took < 80*time.Second || took > 81*time.Second {
			t.Errorf("Publish took %v, want a minute for a response, and twice 10 s", took)
		}

		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		tries = 1
		if _, err := c.Publish(ctx, "demo", "", updated("urn:a")); err != context.DeadlineExceeded || tries != 2 {
			t.Errorf("Publish: got error %v after %d tries, want %v after 2", err, tries, context.DeadlineExceeded)
		}
	})
}

// TestPublishBodyLost checks that a response with status 200 but without a receipt is an error.
func TestPublishBodyLost(t *testing.T) {
	for name, answer := range map[string]http.HandlerFunc{
		"empty": func(http.ResponseWriter, *http.Request) {},
		"page":  func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "<html>welcome</html>") },
		"other JSON": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(w, "{}")
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := httptest.NewServer(answer)
			defer s.Close()
			c := newClient(t, s.URL, client.Options{RetryTimeout: time.Nanosecond})
			r, err := c.Publish(t.Context(), "demo", "key", updated("urn:x:a"))
			if err == nil || !strings.Contains(err.Error(), "response is not from a hub") {
				t.Errorf("Publish() = %+v, %v, want an error", r, err)
			}
		})
	}
}
