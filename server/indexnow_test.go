package server

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/rshub/rshub/internal/until"
)

// A hub that is told to do so tells an engine of each change, and goes on where it stopped.
func TestIndexNow(t *testing.T) {
	type body struct {
		Host, Key string
		URLList   []string
	}
	took := make(chan body, 10)
	engine := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var b body
		if err := json.NewDecoder(r.Body).Decode(&b); err != nil {
			t.Error(err)
		}
		took <- b
		w.WriteHeader(http.StatusAccepted)
	}))
	defer engine.Close()
	dir := t.TempDir()
	for _, first := range []bool{true, false} {
		h := start(t, Config{
			Data: dir, CallbackAllow: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")},
			IndexNow: IndexNow{Sets: []string{"demo"}, Key: "0123456789abcdef", Endpoint: engine.URL + "/indexnow"},
		})
		if first {
			until.Done(t, "the set begins", func() bool { return strings.Contains(h.log.String(), "told of a set from here on") })
		}
		h.Publish("other")
		h.Publish("demo")
		select {
		case b := <-took:
			if b.Host != "example.org" || b.Key != "0123456789abcdef" || len(b.URLList) != 1 {
				t.Errorf("the engine is told %+v", b)
			}
		case <-time.After(time.Minute):
			t.Fatalf("the engine is told nothing\n%s", h.log)
		}
		h.Stop()
	}
	select {
	case b := <-took:
		t.Errorf("the engine is told more: %+v", b)
	default:
	}
}
