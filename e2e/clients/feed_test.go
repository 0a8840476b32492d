package clients

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/rshub/rshub/e2e/internal/hubtest"
)

// readFeed reads a feed and its archive with feedparser, which somebody else wrote. It
// prints the entries of the documents as JSON, the newest document first.
const readFeed = `import feedparser, json, sys
at, documents = sys.argv[1], []
while at:
    d = feedparser.parse(at)
    if d.bozo or d.status != 200 or d.version != "atom10" or not d.feed.id or not d.feed.updated_parsed:
        sys.exit(f"{at}: {d.get('bozo_exception')} {d.get('status')} {d.version} {d.feed}")
    documents.append([[e.id, e.updated, e.link, e.title] for e in d.entries])
    at = next((l.href for l in d.feed.links if l.rel == "prev-archive"), None)
print(json.dumps(documents))`

// TestFeedReader reads all changes of a set as a feed.
func TestFeedReader(t *testing.T) {
	t.Parallel()
	const interpreter = "/usr/bin/python3" // Debian's own, which has the module
	if code, _, said := hubtest.Run(t, nil, nil, interpreter, "-c", "import feedparser"); code != 0 {
		t.Fatalf("this test needs feedparser: apt-get install python3-feedparser: %s", said)
	}
	h := hubtest.StartHub(t)
	const set, total = "news", 3_500
	for begin := 0; begin < total; begin += 500 {
		var lines strings.Builder
		for i := begin; i < begin+500; i++ {
			fmt.Fprintf(&lines, `{"loc":"https://example.org/%d?a=1&b=%%20","change":"updated","type":"text/html"}`+"\n", i)
		}
		hubtest.Publish(t, h, set, []byte(lines.String()))
	}
	code, out, said := hubtest.Run(t, nil, nil, interpreter, "-c", readFeed, h.URL+"/sets/"+set+"/atom.xml")
	if code != 0 {
		t.Fatalf("feedparser ends with %d: %s", code, said)
	}
	var documents [][][4]string
	if err := json.Unmarshal([]byte(out), &documents); err != nil {
		t.Fatal(err)
	}
	if len(documents) != 3 { // pages 4 and 3, page 2, page 1
		t.Errorf("the feed has %d documents", len(documents))
	}
	next := total
	for _, entries := range documents {
		for _, e := range entries {
			next--
			loc := fmt.Sprintf("https://example.org/%d?a=1&b=%%20", next)
			if e[0] != loc || e[2] != loc || e[3] != loc || !strings.HasSuffix(e[1], "Z") {
				t.Fatalf("entry %d is %q", next, e)
			}
		}
	}
	if next != 0 {
		t.Errorf("the feed ends %d changes too early", next)
	}
}

// readSent reads feeds that were sent, one base64 text a line. It prints of each what names its
// hub and its topic, and its entries.
const readSent = `import base64, feedparser, json, sys
sent = []
for line in sys.stdin:
    d = feedparser.parse(base64.b64decode(line))
    if d.bozo or d.version != "atom10" or not d.feed.id or not d.feed.title or not d.feed.updated_parsed:
        sys.exit(f"{line}: {d.get('bozo_exception')} {d.version} {d.feed}")
    links = {l.rel: l.href for l in d.feed.links}
    sent.append([[links["hub"], links["self"], d.feed.id]] + [[e.id, e.updated, e.link] for e in d.entries])
print(json.dumps(sent))`

// TestFeedSent subscribes to a feed as readers do that know WebSub and nothing of rshub: what
// the feed names is asked for, and what is sent is read with feedparser.
func TestFeedSent(t *testing.T) {
	t.Parallel()
	const interpreter, set, total, batch = "/usr/bin/python3", "sent", 600, 50
	h := hubtest.StartWebSub(t)
	lines := func(begin int) []byte {
		var b strings.Builder
		for i := begin; i < begin+batch; i++ {
			fmt.Fprintf(&b, `{"loc":"https://example.org/%d?a=1&b=%%20","change":"updated","type":"text/html"}`+"\n", i)
		}
		return []byte(b.String())
	}
	hubtest.Publish(t, h, set, lines(0))
	a, err := hubtest.Request(http.MethodGet, h.URL+"/sets/"+set+"/atom.xml", nil)
	if err != nil || a.Status != http.StatusOK {
		t.Fatalf("the feed is answered %d, %v", a.Status, err)
	}
	links := map[string]string{}
	for _, m := range regexp.MustCompile(`<([^>]*)>; rel="([^"]*)"`).FindAllStringSubmatch(a.Header.Get("Link"), -1) {
		links[m[2]] = m[1]
	}
	var mu sync.Mutex
	var sent [][]byte
	callback := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet {
			_, _ = io.WriteString(w, r.URL.Query().Get("hub.challenge"))
			return
		}
		body, err := io.ReadAll(r.Body)
		if err != nil || r.Header.Get("Content-Type") != "application/atom+xml" || !strings.Contains(r.Header.Get("Link"), "<"+links["self"]+`>; rel="self"`) {
			t.Errorf("what is sent has the header %v, %v", r.Header, err)
		}
		mu.Lock()
		defer mu.Unlock()
		sent = append(sent, body)
	}))
	defer callback.Close()
	form := url.Values{"hub.mode": {"subscribe"}, "hub.topic": {links["self"]}, "hub.callback": {callback.URL}, "rs.since": {"start"}}
	if a, err := hubtest.Request(http.MethodPost, links["hub"], strings.NewReader(form.Encode()), "Content-Type: application/x-www-form-urlencoded"); err != nil || a.Status != http.StatusAccepted {
		t.Fatalf("subscribing is answered %d %s, %v", a.Status, a.Body, err)
	}
	for begin := batch; begin < total; begin += batch {
		hubtest.Publish(t, h, set, lines(begin))
	}
	var entries [][3]string
	hubtest.Until(t, "all is sent", func() error {
		mu.Lock()
		var in strings.Builder
		for _, body := range sent {
			fmt.Fprintln(&in, base64.StdEncoding.EncodeToString(body))
		}
		mu.Unlock()
		if n := strings.Count(in.String(), "\n"); n == 0 {
			return errors.New("nothing was sent")
		}
		code, out, said := hubtest.Run(t, nil, strings.NewReader(in.String()), interpreter, "-c", readSent)
		if code != 0 {
			t.Fatalf("feedparser ends with %d: %s", code, said)
		}
		var feeds [][][3]string
		if err := json.Unmarshal([]byte(out), &feeds); err != nil {
			t.Fatal(err)
		}
		entries = nil
		for _, feed := range feeds {
			if feed[0] != [3]string{links["hub"], links["self"], links["self"]} {
				t.Fatalf("a feed names %q", feed[0])
			}
			entries = append(entries, feed[1:]...)
		}
		if len(entries) < total {
			return fmt.Errorf("%d of %d entries are there", len(entries), total)
		}
		return nil
	})
	for i, e := range entries {
		if loc := fmt.Sprintf("https://example.org/%d?a=1&b=%%20", i); e[0] != loc || e[2] != loc || i > 0 && e[1] <= entries[i-1][1] {
			t.Fatalf("entry %d is %q", i, e)
		}
	}
}
