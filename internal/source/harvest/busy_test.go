package harvest

import (
	"errors"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// A host that asked to wait gets no request until then, for any document. Other hosts are not
// affected.
func TestBusyHostGetsNoRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		requests, busy := map[string]int{}, true
		g := &Getter{Tries: 2, Client: &http.Client{Transport: roundTrip(func(r *http.Request) (*http.Response, error) {
			requests[r.URL.Host]++
			answer := &http.Response{StatusCode: http.StatusOK, Header: http.Header{}, Body: io.NopCloser(strings.NewReader("text")), Request: r}
			if busy && r.URL.Host == "a.example" {
				answer.StatusCode = http.StatusServiceUnavailable
				answer.Header.Set("Retry-After", "3600")
			}
			return answer, nil
		})}}
		once := g.Once()
		get := func(target string) error {
			a, err := once.Get(t.Context(), "the list", target, Version{})
			if err == nil {
				a.Close()
			}
			return err
		}
		for i := range 20 {
			err := get("http://a.example/list?" + strings.Repeat("x", i))
			if b, ok := errors.AsType[*Busy](err); !ok || b.Status != 503 || b.After != time.Hour-time.Duration(i)*time.Minute {
				t.Errorf("try %d: got %v, want Busy for the rest of an hour", i, err)
			}
			time.Sleep(time.Minute)
		}
		if _, err := once.Sitemaps(t.Context(), &url.URL{Scheme: "http", Host: "a.example"}); !IsAway(err) {
			t.Errorf("Sitemaps: got %v, want Busy", err)
		}
		if err := get("http://b.example/list"); err != nil {
			t.Errorf("another host: got %v", err)
		}
		if requests["a.example"] != 1 || requests["b.example"] != 1 {
			t.Errorf("got %v requests, want one each", requests)
		}
		busy = false
		begin := time.Now()
		a, err := g.Get(t.Context(), "the list", "http://a.example/list", Version{}) // waits for the rest
		if err != nil || time.Since(begin) != 40*time.Minute {
			t.Fatalf("after %v: got error %v", time.Since(begin), err)
		}
		a.Close()
	})
}
