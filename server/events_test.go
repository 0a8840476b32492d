package server

import (
	"encoding/json"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/running"
)

// Events of a source become changes as the description of the set says, and followers get
// them as changes and as events. Another hub takes those as they are.
func TestEvents(t *testing.T) {
	h := start(t, Config{})
	topic := h.URL + "/sets/items/changes"
	post := func(topic, mediaType, body string) (*http.Response, *feed.Receipt, string) {
		t.Helper()
		resp, text := running.Do(t, "POST", topic, body, "Content-Type", mediaType)
		receipt := &feed.Receipt{}
		if resp.StatusCode == http.StatusOK {
			if err := json.Unmarshal([]byte(text), receipt); err != nil {
				t.Fatal(err)
			}
		}
		return resp, receipt, text
	}
	const one, batch = "application/cloudevents+json", "application/cloudevents-batch+json"
	file, err := os.ReadFile(filepath.Join("..", "cloudevents", "testdata", "debezium.json"))
	if err != nil {
		t.Fatal(err)
	}
	debezium := string(file)

	resp, _, text := post(topic, batch, debezium)
	if detail := checkProblem(t, resp, text, http.StatusBadRequest, "invalid"); !strings.Contains(detail, "entry 1: type is") || !strings.Contains(detail, "has no mapping") {
		t.Errorf("without a mapping: %s", text)
	}
	resp, text = running.Do(t, "PUT", h.URL+"/sets/items", `{"events":{"changes":{"x":"moved"}}}`, "Content-Type", "application/json")
	if detail := checkProblem(t, resp, text, http.StatusBadRequest, "invalid"); !strings.Contains(detail, "events: changes: ") {
		t.Errorf("a mapping that means nothing: %s", text)
	}
	const mapping = `{"by":"data.payload.op","changes":{"r":"created","d":"deleted","t":"skip"},"loc":"https://example.org/items/{data.payload.after.id|data.payload.before.id}"}`
	if resp, text = running.Do(t, "PUT", h.URL+"/sets/items", `{"events": `+mapping+`}`, "Content-Type", "application/json"); resp.StatusCode >= 300 {
		t.Fatalf("the description is answered %d %s", resp.StatusCode, text)
	}
	if _, text = running.Do(t, "GET", h.URL+"/sets/items", ""); !strings.Contains(text, `"events":`+mapping) {
		t.Errorf("the set is %s", text)
	}

	_, first, text := post(topic, batch, debezium)
	if first.Count != 2 || first.Replayed {
		t.Fatalf("the events are answered %s", text)
	}
	if _, again, text := post(topic, batch, debezium); again.Cursor != first.Cursor || !again.Replayed {
		t.Errorf("the same events again are answered %s", text)
	}
	const skipped = `{"specversion":"1.0","id":"3","source":"/s","type":"t","data":{"payload":{"op":"t"}}}`
	if _, none, text := post(topic, one, skipped); none.Count != 0 || none.Cursor != first.Cursor {
		t.Errorf("an event that is no change is answered %s", text)
	}
	resp, _, text = post(topic, one, strings.Replace(skipped, `"t"}}`, `"m"}}`, 1))
	if detail := checkProblem(t, resp, text, http.StatusBadRequest, "invalid"); !strings.Contains(detail, `data.payload.op is "m"`) {
		t.Errorf("an event that the mapping does not know: %s", text)
	}

	page, err := http.NewRequest("GET", topic+"?since=start", nil)
	if err != nil {
		t.Fatal(err)
	}
	page.Header.Set("Accept", batch)
	resp, err = http.DefaultClient.Do(page)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	events, err := io.ReadAll(resp.Body)
	if err != nil || resp.Header.Get("Content-Type") != batch || !strings.Contains(strings.Join(resp.Header.Values("Link"), ","), "since="+first.Cursor) {
		t.Errorf("the page is %v %v", err, resp.Header)
	}
	if _, copied, text := post(h.URL+"/sets/copy/changes", batch, string(events)); copied.Count != 2 {
		t.Errorf("the events of the hub are answered %s", text)
	}
	if _, text = running.Do(t, "GET", h.URL+"/sets/copy/changes?since=start", ""); !strings.Contains(text, `"loc":"https://example.org/items/1001","change":"created"`) || !strings.Contains(text, `"loc":"https://example.org/items/1002","change":"deleted"`) {
		t.Errorf("the copy is %s", text)
	}
}
