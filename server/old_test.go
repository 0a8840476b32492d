package server

import (
	"compress/gzip"
	"context"
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/rshub/rshub/callback/subscription"
	"github.com/rshub/rshub/changelog"
	"github.com/rshub/rshub/changelog/disklog"
	"github.com/rshub/rshub/hub"
	"github.com/rshub/rshub/internal/memorytest"
	"github.com/rshub/rshub/internal/redistest"
)

// oldDir has what earlier programs wrote, see its README.md. oldBase is the base URL of
// their hub.
const (
	oldDir  = "testdata/8d9d0c4"
	oldBase = "https://hub.example.org"
)

// An oldMemory is what the earlier programs answered from one memory.
type oldMemory struct {
	Time time.Time // a moment after the last change
	Gets []struct {
		URL, Accept      string
		Status           int
		ETag, Link, Body string
	}
	Publishes     []struct{ Set, Key, ContentType, Body, Answer string }
	Subscriptions struct {
		Subscriptions []struct {
			ID, Callback, Cursor string
			Failed               int
			Prefix               string `json:"rs.prefix"`
			LeaseEnd             time.Time
		}
	}
}

// oldAnswers returns what the earlier programs answered, by where the memory was.
func oldAnswers(t *testing.T) (all map[string]oldMemory) {
	t.Helper()
	f, err := os.Open(filepath.Join(oldDir, "answers.json.gz"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err == nil {
		err = json.NewDecoder(z).Decode(&all)
	}
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// What earlier programs wrote opens unchanged: documents, ETags, cursors,
// idempotency keys and subscriptions stay as they were.
func TestOldMemories(t *testing.T) {
	answers := oldAnswers(t)
	for _, test := range []struct {
		name, archive, answers string
		config                 func(t *testing.T, dir string) Config
	}{
		{"data directory", "data.tar.gz", "disk", oldOnDisk},
		{"backup", "backup.tar.gz", "disk", oldOnDisk},
		{"Redis", "redis.tar.gz", "redis", oldInRedis},
	} {
		t.Run(test.name, func(t *testing.T) {
			old := answers[test.answers]
			c := test.config(t, memorytest.Unpack(t, filepath.Join(oldDir, test.archive)))
			old.subscribed(t, c)
			old.known(t, c)
			c.BaseURL, c.NoInventory = oldBase, true // a hub with inventories names more in its answers
			old.answered(t, start(t, c).URL)
		})
	}
}

func oldOnDisk(_ *testing.T, dir string) Config { return Config{Data: dir} }

func oldInRedis(t *testing.T, dir string) Config {
	return Config{RedisURL: "redis://" + redistest.Start(t, "--dir", dir).Addr}
}

// newlyListed matches what a Capability List says of framework notifications.
var newlyListed = regexp.MustCompile(".*capability=\"framework-notification\".*\n")

// answered checks that a hub gives the same answers, besides what is new in them.
func (old *oldMemory) answered(t *testing.T, hub string) {
	for _, want := range old.Gets {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, hub+want.URL, nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Accept-Encoding", "identity")
		if want.Accept != "" {
			req.Header.Set("Accept", want.Accept)
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil {
			t.Fatal(err)
		}
		if strings.HasSuffix(want.URL, "/capabilitylist.xml") && resp.StatusCode == http.StatusOK {
			body = newlyListed.ReplaceAll(body, nil) // the old program did not know it
			resp.Header.Set("ETag", want.ETag)
		}
		if resp.StatusCode != want.Status || resp.Header.Get("ETag") != want.ETag || resp.Header.Get("Link") != want.Link {
			t.Errorf("%s is answered with %d, ETag %s, Link %s; it was %d, %s, %s", want.URL,
				resp.StatusCode, resp.Header.Get("ETag"), resp.Header.Get("Link"), want.Status, want.ETag, want.Link)
		}
		if want.Status == http.StatusOK && string(body) != want.Body {
			t.Errorf("%s is\n%s\nit was\n%s", want.URL, body, want.Body)
		}
	}
}

// subscribed checks that the subscriptions are as they were.
func (old *oldMemory) subscribed(t *testing.T, c Config) {
	source, err := OpenSource(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	defer source.Close()
	registry, _, err := source.Beside.Subscriptions(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	records, _, err := registry.List(t.Context(), "many", subscription.ID{}, 10)
	if err != nil {
		t.Fatal(err)
	}
	if len(records) != len(old.Subscriptions.Subscriptions) {
		t.Fatalf("there are %d subscriptions, there were %d", len(records), len(old.Subscriptions.Subscriptions))
	}
	for i, want := range old.Subscriptions.Subscriptions {
		r := records[i]
		if r.ID().String() != want.ID || r.Callback != want.Callback || r.Cursor.String() != want.Cursor || r.Failed != want.Failed ||
			r.Filter.Prefix != want.Prefix || r.Secret != "secret" || !r.LeaseEnd.Equal(want.LeaseEnd) {
			t.Errorf("the subscription is %+v, it was %+v", r, want)
		}
	}
}

// known checks that publishes which are sent again get the same answers. It makes a
// copy of the memory, and sets the clock of the copy: keys expire after a day.
func (old *oldMemory) known(t *testing.T, c Config) {
	source, err := OpenSource(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	defer source.Close()
	dir := t.TempDir()
	copied, err := disklog.OpenImport(dir, source.ID(), disklog.Options{})
	if err == nil {
		_, err = changelog.Copy(context.Background(), source, copied, nil, nil)
	}
	if err == nil {
		err = copied.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	memory, err := disklog.Open(dir, disklog.Options{Now: func() time.Time { return old.Time.Add(time.Hour) }})
	if err != nil {
		t.Fatal(err)
	}
	defer memory.Close()
	h := hub.New(memory, hub.Options{Base: oldBase})
	defer h.Close()
	for _, p := range old.Publishes {
		req := httptest.NewRequest(http.MethodPost, "/", strings.NewReader(p.Body))
		req.Header.Set("Content-Type", p.ContentType)
		req.Header.Set("Idempotency-Key", p.Key)
		w := httptest.NewRecorder()
		if err := h.ServePublish(w, req, p.Set); err != nil {
			t.Errorf("key %s: %v", p.Key, err)
			continue
		}
		var got, want map[string]any
		if json.Unmarshal(w.Body.Bytes(), &got) != nil || json.Unmarshal([]byte(p.Answer), &want) != nil || !maps.Equal(got, want) {
			t.Errorf("key %s is answered with %s, it was %s", p.Key, w.Body, p.Answer)
		}
	}
}
