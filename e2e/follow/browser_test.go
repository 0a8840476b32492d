package follow

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/rshub/rshub/e2e/internal/browser"
	"github.com/rshub/rshub/e2e/internal/hubtest"
	"github.com/rshub/rshub/e2e/internal/trial"
)

// page follows a set with a WebSocket and an EventSource, as users of rshub would write it.
const page = `<!DOCTYPE html><title>follower</title><script>
const topic = new URLSearchParams(location.search).get("topic");
const followed = {socket: [], stream: []}, problems = [];
let lost = 0;
function handle(name, text, last) {
  const m = JSON.parse(text);
  if (last !== null && m.after !== last) problems.push(name + ": got after " + m.after + ", want " + last);
  followed[name].push(...m.changes);
  return m.cursor;
}
let cursor = null;
function socket() {
  const ws = new WebSocket(topic.replace(/^http/, "ws") + "?since=" + (cursor ?? "start"), "rs.json");
  ws.onmessage = e => { cursor = handle("socket", e.data, cursor); };
  ws.onclose = () => { lost++; setTimeout(socket, 50); };
}
let last = null;
function stream() {
  const es = new EventSource(topic + "?since=" + (last ?? "start"));
  es.onmessage = e => {
    const m = handle("stream", e.data, last);
    if (m !== e.lastEventId) problems.push("stream: got ID " + e.lastEventId + ", want cursor " + m);
    last = m;
  };
  es.onerror = () => { if (es.readyState === EventSource.CLOSED) setTimeout(stream, 50); };
}
socket(); stream();
</script>`

// TestBrowser follows from a page of another origin while the hub is stopped and killed.
func TestBrowser(t *testing.T) {
	t.Parallel()
	chromium := browser.Start(t)
	pages := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		_, _ = w.Write([]byte(page))
	}))
	defer pages.Close()
	stranger := httptest.NewServer(pages.Config.Handler) // an origin that is not allowed
	defer stranger.Close()
	h := hubtest.StartHub(t, "RSHUB_ORIGINS="+pages.URL)
	const set = "seen"
	hubtest.Publish(t, h, set, hubtest.Changes("first", 1200))

	tab := browser.Open(t, chromium, pages.URL+"/?topic="+h.Topic(set))
	other := browser.Open(t, tab, stranger.URL+"/?topic="+h.Topic(set))

	has := func(n int) {
		t.Helper()
		hubtest.Until(t, fmt.Sprintf("the page has %d changes", n), func() error {
			got := browser.Evaluate[[]int](t, tab, "[followed.socket.length, followed.stream.length]")
			if len(got) != 2 || got[0] < n || got[1] < n {
				return fmt.Errorf("got %v", got)
			}
			return nil
		})
	}
	has(1200)
	hubtest.Publish(t, h, set, hubtest.Changes("live", 50))
	has(1250)
	h.Stop(t)
	h.Start(t)
	hubtest.Publish(t, h, set, hubtest.Changes("stopped", 1500))
	has(2750)
	h.Kill()
	h.Start(t)
	hubtest.Publish(t, h, set, hubtest.Changes("killed", 300))
	has(3050)

	if problems := browser.Evaluate[[]string](t, tab, "problems"); len(problems) > 0 {
		t.Errorf("problems of the page = %q, want none", problems)
	}
	all := hubtest.ReadMemory(t, h, set)
	for _, name := range []string{"socket", "stream"} {
		var got []trial.Entry
		for _, raw := range browser.Evaluate[[]json.RawMessage](t, tab, "followed."+name) {
			e, err := trial.ParseEntry(raw)
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, e)
		}
		hubtest.WantEntries(t, "the page's "+name, got, all)
	}
	if lost := browser.Evaluate[[]int](t, tab, "[lost]"); lost[0] < 2 {
		t.Errorf("the page lost %d connections, want at least 2", lost[0])
	}
	hubtest.Until(t, "a page of a forbidden origin is rejected", func() error {
		if browser.Evaluate[[]int](t, other, "[lost]")[0] == 0 {
			return errors.New("not yet")
		}
		return nil
	})
	if n := browser.Evaluate[int](t, other, "followed.socket.length + followed.stream.length"); n > 0 {
		t.Errorf("page of a forbidden origin got %d changes, want 0", n)
	}
}
