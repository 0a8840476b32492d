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
	c := newClient(t, s.URL, client.Options{Patience: -1})
	size := int64(7)
	changes := updated("urn:1", "urn:2")
	changes[1].Length, changes[1].Hash, changes[1].Attrs = &size, "md5:"+strings.Repeat("0", 32), []resourcesync.Attr{{Namespace: "urn:n", Name: "a", Value: "<ü>"}}
	for i := range 2 {
		r, err := c.Publish(t.Context(), "demo", "key", changes)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.HasPrefix(r.First, "1-") || !strings.HasPrefix(r.Cursor, "2-") || r.Set != "demo" || r.Count != 2 || r.Replayed != (i == 1) {
			t.Errorf("publish %d: %+v", i, r)
		}
	}
	if _, err := c.Publish(t.Context(), "demo", "key", changes[:1]); !errors.Is(err, feed.ErrKeyReused) {
		t.Errorf("other changes with the same key: %v", err)
	}
	for range 2 { // without a key each call is a publish of its own
		if r, err := c.Publish(t.Context(), "demo", "", changes[:1]); err != nil || r.Replayed {
			t.Errorf("%+v, %v", r, err)
		}
	}
	r, err := c.PublishLines(t.Context(), "demo", "lines", []byte(`{"loc":"urn:3","change":"created"}`+"\n"), 1)
	if err != nil || r.Count != 1 {
		t.Errorf("%+v, %v", r, err)
	}
	if got := s.held(t); !slices.Equal(got, []string{"urn:1", "urn:2", "urn:1", "urn:1", "urn:3"}) {
		t.Errorf("the memory holds %q", got)
	}
	for b, err := range c.Follow(t.Context(), "demo", "start", client.FollowOptions{}) {
		if got := b.Entries[1].Change; err != nil || *got.Length != size || got.Hash != changes[1].Hash || !slices.Equal(got.Attrs, changes[1].Attrs) {
			t.Errorf("%+v came, %v", got, err)
		}
		break
	}
}

func TestPublishIncremental(t *testing.T) {
	got := ""
	s := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { got = r.Header.Get("Incremental") }))
	defer s.Close()
	c := newClient(t, s.URL, client.Options{Patience: -1})
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
			if _, err := tt.publish(); !errors.Is(err, client.ErrNoHub) {
				t.Errorf("publish = %v, want %v", err, client.ErrNoHub)
			}
			if got != tt.want {
				t.Errorf("header Incremental = %q, want %q", got, tt.want)
			}
		})
	}
}

// What is wrong in itself is not sent.
func TestPublishChecks(t *testing.T) {
	s := newSite(t)
	c := newClient(t, s.URL, client.Options{})
	bad := updated("urn:a", "relative")
	for _, test := range []struct {
		name, set, key string
		changes        []resourcesync.Change
		want           string
	}{
		{"no name of a set", "a/b", "", updated("urn:a"), "cannot name a set"},
		{"a key of two words", "demo", "a b", updated("urn:a"), "one word"},
		{"a key of two lines", "demo", "a\nb", updated("urn:a"), "one word"},
		{"nothing", "demo", "", nil, "at least one"},
		{"a bad change", "demo", "", bad, "entry 2 (relative): loc"},
	} {
		_, err := c.Publish(t.Context(), test.set, test.key, test.changes)
		if !errors.Is(err, resourcesync.ErrInvalid) || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v", test.name, err)
		}
	}
	if n := len(s.asked()); n > 0 {
		t.Errorf("%d requests", n)
	}
}

// trouble answers some requests with a problem, and with a Retry-After.
func trouble(status int, detail, retry string) func(http.ResponseWriter, *http.Request) {
	return func(w http.ResponseWriter, r *http.Request) {
		p := problem.New(status, "test", detail)
		if retry != "" {
			p.Header = http.Header{"Retry-After": {retry}}
		}
		problem.Write(w, r, p)
	}
}

// abort breaks the connection off.
func abort(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }

func TestPublishAgain(t *testing.T) {
	const first = 250 * time.Millisecond // the shortest pause
	for _, test := range []struct {
		name   string
		answer func(http.ResponseWriter, *http.Request)
		least  time.Duration // of each wait
		says   string
	}{
		{"503", trouble(503, "the memory is away", ""), first, "answers 503 Service Unavailable (the memory is away)"},
		{"500", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(500) }, first, "answers 500 Internal Server Error;"},
		{"429", trouble(429, "slowly", ""), first, "429"},
		{"408", trouble(408, "slow", ""), first, "408"},
		{"507", trouble(507, "full", ""), 30 * time.Second, "507 Insufficient Storage (full)"},
		{"Retry-After", trouble(503, "", "40"), 40 * time.Second, "in 40s"},
		{"a date", trouble(429, "", "Tue, 03 Feb 2026 04:09:06 GMT"), 4 * time.Minute, "in 4m0s"},
		{"no answer", abort, first, "cannot reach"},
		{"half an answer", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "100")
			_, _ = io.WriteString(w, `{"set":"demo",`)
		}, first, "cannot reach"},
		{"half a problem", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "100")
			w.WriteHeader(400)
		}, first, "cannot reach"},
	} {
		t.Run(test.name, func(t *testing.T) {
			s, clock := newSite(t), newClock()
			var bodies, keys []string
			s.trouble = func(n int, w http.ResponseWriter, r *http.Request) bool {
				body, _ := io.ReadAll(r.Body)
				r.Body = io.NopCloser(bytes.NewReader(body))
				bodies, keys = append(bodies, string(body)), append(keys, r.Header.Get("Idempotency-Key"))
				if n == 1 || n == 2 && test.name != "a date" {
					test.answer(w, r)
					return true
				}
				return false
			}
			r, err := newClient(t, s.URL, clock.options()).Publish(t.Context(), "demo", "", updated("urn:a"))
			if err != nil || r.Replayed || len(s.held(t)) != 1 {
				t.Errorf("%+v, %v", r, err)
			}
			if len(keys) < 2 || len(slices.Compact(bodies)) != 1 || len(slices.Compact(keys)) != 1 || len(keys[0]) < 16 {
				t.Errorf("the tries have the keys %q and the bodies %q", keys, bodies)
			}
			for _, wait := range clock.waits {
				if wait < test.least || wait > 4*test.least {
					t.Errorf("waits of %v, want %v", clock.waits, test.least)
				}
			}
			if notes := clock.said(); len(notes) != len(clock.waits) || !strings.Contains(notes[0], test.says) {
				t.Errorf("it says %q", notes)
			}
		})
	}
}

// An answer that got lost does not double.
func TestPublishAnswerLost(t *testing.T) {
	s, clock := newSite(t), newClock()
	s.lost = func(n int) bool { return n < 3 }
	c := newClient(t, s.URL, clock.options())
	r, err := c.Publish(t.Context(), "demo", "", updated("urn:a", "urn:b"))
	if err != nil || r.Replayed || r.Count != 2 {
		t.Errorf("%+v, %v", r, err)
	}
	if got := s.held(t); !slices.Equal(got, []string{"urn:a", "urn:b"}) || len(s.asked()) != 3 {
		t.Errorf("after %d requests the memory holds %q", len(s.asked()), got)
	}
}

func TestPublishGivesUp(t *testing.T) {
	for _, test := range []struct {
		name     string
		patience time.Duration
		retry    string
		waited   time.Duration
		after    time.Duration
		says     string
	}{
		{"by default", 0, "", 10 * time.Minute, 0, "gave up after"},
		{"soon", 90 * time.Second, "", 90 * time.Second, 0, "gave up after"},
		{"at once", -1, "", 0, 0, "(away)"},
		{"early", 0, "3600", 0, time.Hour, "1h0m0s"},
		{"in the middle", 5 * time.Minute, "200", 200 * time.Second, 200 * time.Second, "3m20s"},
	} {
		t.Run(test.name, func(t *testing.T) {
			s, clock := newSite(t), newClock()
			s.trouble = func(_ int, w http.ResponseWriter, r *http.Request) bool {
				trouble(503, "away", test.retry)(w, r)
				return true
			}
			o := clock.options()
			o.Patience = test.patience
			_, err := newClient(t, s.URL, o).Publish(t.Context(), "demo", "", updated("urn:a"))
			u, ok := errors.AsType[*client.Unavailable](err)
			if !ok || u.Tries != len(s.asked()) || u.After != test.after || u.Lasting || !strings.Contains(err.Error(), test.says) {
				t.Fatalf("it ended with %+v", err)
			}
			if p, ok := errors.AsType[*feed.Problem](err); !ok || p.Status != 503 || p.Detail != "away" {
				t.Errorf("the hub's answer was %+v", p)
			}
			var waited time.Duration
			for i, wait := range clock.waits {
				waited += wait
				if most := min(30*time.Second, 500*time.Millisecond<<min(i, 10)); test.after == 0 && wait > most || test.after == 0 && i < len(clock.waits)-1 && wait < most/2 {
					t.Errorf("wait %d is %v, want up to %v", i, wait, most)
				}
			}
			if waited != test.waited {
				t.Errorf("waited %v, want %v", waited, test.waited)
			}
		})
	}
}

func TestPublishRefused(t *testing.T) {
	for _, test := range []struct {
		name   string
		answer func(w http.ResponseWriter, r *http.Request)
		is     error
		says   string
	}{
		{"entry", func(w http.ResponseWriter, r *http.Request) {
			problem.Write(w, r, &resourcesync.Error{Err: resourcesync.ErrInvalid, Entry: 3, Loc: "urn:x", Rule: "loc is not mine"})
		}, nil, "the hub refused it: 400 Bad Request: entry 3 (urn:x): loc is not mine"},
		{"no right", trouble(403, "not yours", ""), nil, "403 Forbidden: not yours"},
		{"no set", func(w http.ResponseWriter, r *http.Request) { problem.Write(w, r, feed.ErrNoSet) }, feed.ErrNoSet, "404 Not Found"},
		{"another's page", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/html")
			w.WriteHeader(405)
			fmt.Fprint(w, "<html>\x1b[31m")
		}, nil, "the hub refused it: 405 Method Not Allowed"},
		{"redirect", func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "https://other.example.org/", http.StatusTemporaryRedirect)
		}, nil, "307 Temporary Redirect: it points to https://other.example.org/"},
	} {
		for _, before := range []bool{false, true} { // a try that nobody knows the end of
			t.Run(fmt.Sprint(test.name, before), func(t *testing.T) {
				s, clock := newSite(t), newClock()
				s.trouble = func(n int, w http.ResponseWriter, r *http.Request) bool {
					if before && n == 1 {
						abort(w, r)
					}
					test.answer(w, r)
					return true
				}
				_, err := newClient(t, s.URL, clock.options()).Publish(t.Context(), "demo", "", updated("urn:a"))
				refused, ok := errors.AsType[*client.Refused](err)
				if !ok || refused.Doubt != before || !strings.Contains(err.Error(), test.says) || test.is != nil && !errors.Is(err, test.is) {
					t.Fatalf("it ended with %+v", err)
				}
				if (refused.Location != "") != (test.name == "redirect") {
					t.Errorf("it points to %q", refused.Location)
				}
				if len(clock.waits) != len(s.asked())-1 || (len(clock.waits) == 1) != before {
					t.Errorf("%d requests and the waits %v", len(s.asked()), clock.waits)
				}
			})
		}
	}
}

// What time does not mend is not tried again.
func TestPublishHopeless(t *testing.T) {
	s := newSite(t)
	secure := httptest.NewUnstartedServer(nil)
	secure.Config.ErrorLog = log.New(io.Discard, "", 0)
	secure.StartTLS()
	defer secure.Close()
	says := func(text string) string {
		other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, text) }))
		t.Cleanup(other.Close)
		return other.URL
	}
	for _, test := range []struct{ name, url, want string }{
		{"certificate", secure.URL, "certificate"},
		{"scheme", strings.Replace(s.URL, "http:", "https:", 1), "HTTP response to HTTPS client"},
		{"page", says("<html>welcome"), "not as a hub does"},
		{"JSON", says(`{"ok":true}`), "not as a hub does"},
		{"no cursor", says(`{"set":"demo","cursor":"here","count":1}`), "not as a hub does"},
		{"another set", says(`{"set":"other","cursor":"1-1","count":1}`), "not as a hub does"},
		{"another count", says(`{"set":"demo","cursor":"3-3","count":3}`), "took 3 changes of a batch of 1"},
	} {
		clock := newClock()
		_, err := newClient(t, test.url, clock.options()).Publish(t.Context(), "demo", "", updated("urn:a"))
		if err == nil || !strings.Contains(err.Error(), test.want) || len(clock.waits) > 0 {
			t.Errorf("%s: %v after waits of %v", test.name, err, clock.waits)
		}
		u, unavailable := errors.AsType[*client.Unavailable](err)
		if errors.Is(err, client.ErrNoHub) == unavailable || unavailable && !(u.Lasting && u.Unsent) {
			t.Errorf("%s: %+v", test.name, err)
		}
	}
}

func TestPublishCanceled(t *testing.T) {
	for _, when := range []string{"under way", "in a pause"} {
		t.Run(when, func(t *testing.T) {
			s, clock := newSite(t), newClock()
			ctx, cancel := context.WithCancel(t.Context())
			s.trouble = func(_ int, w http.ResponseWriter, r *http.Request) bool {
				if when == "under way" {
					_, _ = io.ReadAll(r.Body) // or the server would not notice that the client goes
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
				t.Errorf("it ended with %v", err)
			}
			if n := len(s.asked()); n != 1 {
				t.Errorf("%d requests", n)
			}
		})
	}
}

// A roundTripper is a hub without a network, so that time can be fake.
type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// Left alone, a client waits by the clock.
func TestClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tries := 0
		c := newClient(t, "https://hub.example.org", client.Options{HTTP: &http.Client{Transport: roundTripper(func(r *http.Request) (*http.Response, error) {
			tries++
			w := httptest.NewRecorder()
			switch {
			case tries == 1: // is silent
				<-r.Context().Done()
				return nil, r.Context().Err()
			case tries < 4:
				trouble(503, "", "10")(w, r)
			default:
				_ = json.NewEncoder(w).Encode(feed.NewReceipt("demo", feed.Cursor{Position: 1, Micros: 1}, 1, true))
			}
			return w.Result(), nil
		})}})
		begun := time.Now()
		if _, err := c.Publish(t.Context(), "demo", "", updated("urn:a")); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(begun); took < 80*time.Second || took > 81*time.Second {
			t.Errorf("it took %v: a minute for an answer, and twice 10 s", took)
		}

		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		tries = 1
		if _, err := c.Publish(ctx, "demo", "", updated("urn:a")); err != context.DeadlineExceeded || tries != 2 {
			t.Errorf("after %d tries: %v", tries, err)
		}
	})
}

// A proxy that answers 200 without the hub's receipt has published nothing.
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
			c := newClient(t, s.URL, client.Options{Patience: time.Nanosecond})
			r, err := c.Publish(t.Context(), "demo", "key", updated("urn:x:a"))
			if err == nil || !strings.Contains(err.Error(), "not as a hub does") {
				t.Errorf("Publish() = %+v, %v, want an error", r, err)
			}
		})
	}
}
