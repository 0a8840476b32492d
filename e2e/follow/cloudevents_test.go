package follow

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	cloudevents "github.com/cloudevents/sdk-go/v2"
	"github.com/cloudevents/sdk-go/v2/binding"
	ceclient "github.com/cloudevents/sdk-go/v2/client"
	cehttp "github.com/cloudevents/sdk-go/v2/protocol/http"
	"github.com/gorilla/websocket"

	"github.com/rshub/rshub/e2e/internal/hubtest"
)

// TestCloudEvents publishes with the CloudEvents SDK in each of its modes, and checks that the SDK
// accepts the messages of followers.
func TestCloudEvents(t *testing.T) {
	t.Parallel()
	h := hubtest.StartHub(t)
	const set = "events"
	hubtest.Must(t, http.StatusOK, http.MethodPut, h.URL+"/sets/"+set, []byte(`{"cloudevents":{"types":{"org.example.moved":"updated","org.example.seen":"none"}}}`))
	topic := h.Topic(set)
	newEvent := func(id, kind, subject string) cloudevents.Event {
		e := cloudevents.NewEvent()
		e.SetID(id)
		e.SetType(kind)
		e.SetSource("https://example.org/items/")
		e.SetSubject(subject)
		e.SetExtension("note", "ü \"%")
		if err := e.SetData(cloudevents.ApplicationJSON, map[string]any{"any": []int{1}}); err != nil {
			t.Fatal(err)
		}
		return e
	}

	dialer := websocket.Dialer{Subprotocols: []string{"cloudevents.json"}, HandshakeTimeout: hubtest.Client.Timeout}
	ws, _, err := dialer.DialContext(t.Context(), "ws"+strings.TrimPrefix(topic, "http")+"?since=start", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer ws.Close()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, topic+"?since=start", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Accept", "text/event-stream, application/cloudevents+json")
	stream, err := hubtest.Client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Body.Close()

	sdk, err := ceclient.NewHTTP(cehttp.WithTarget(topic))
	if err != nil {
		t.Fatal(err)
	}
	structured := binding.WithForceStructured(t.Context())
	for range 2 { // the second one is a repeat
		if result := sdk.Send(structured, newEvent("1", "org.example.created", "a")); !cloudevents.IsACK(result) {
			t.Fatal("structured mode: ", result)
		}
	}
	for range 2 {
		if result := sdk.Send(binding.WithForceBinary(t.Context()), newEvent("2", "org.example.moved", "b c")); !cloudevents.IsACK(result) {
			t.Fatal("binary mode: ", result)
		}
	}
	if result := sdk.Send(t.Context(), newEvent("3", "org.example.seen", "a")); !cloudevents.IsACK(result) {
		t.Fatal("event that is not a change: ", result)
	}
	if result := sdk.Send(t.Context(), newEvent("4", "org.example.renamed", "a")); cloudevents.IsACK(result) || !strings.Contains(result.Error(), "400") {
		t.Fatal("event of an unknown type: ", result)
	}
	batch, err := cehttp.NewHTTPRequestFromEvents(t.Context(), topic, []cloudevents.Event{newEvent("5", "org.example.deleted", "a"), newEvent("6", "org.example.deleted.v2", "https://example.org/d")})
	if err != nil {
		t.Fatal(err)
	}
	resp, err := hubtest.Client.Do(batch)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusNoContent {
		t.Fatal("batch = ", resp.Status, ", want 204")
	}

	want := []string{"created https://example.org/items/a", "updated https://example.org/items/b%20c", "deleted https://example.org/items/a", "deleted https://example.org/d"}
	check := func(way string, events []cloudevents.Event) {
		t.Helper()
		var got []string
		memory := hubtest.ReadMemory(t, h, set)
		for i, e := range events {
			id := fmt.Sprintf("%d-%d", memory[i].Position, e.Time().UnixMicro())
			if err := e.Validate(); err != nil || e.Source() != topic || e.ID() != id || e.Time().Format("2006-01-02T15:04:05.000000Z07:00") != memory[i].Datetime {
				t.Errorf("%s: got event %d\n%s, %v, want ID %s", way, i, e, err, id)
			}
			var data struct{ Loc, Change string }
			if err := e.DataAs(&data); err != nil || e.Subject() != data.Loc {
				t.Errorf("%s: got data of event %d %s, %v, want loc %s", way, i, e.Data(), err, e.Subject())
			}
			got = append(got, strings.TrimPrefix(e.Type(), "io.github.rshub.")+" "+e.Subject())
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: got events %q, want %q", way, got, want)
		}
	}
	// follow reads the expected events. The first one has only the start cursor.
	follow := func(way string, next func() ([]byte, error)) {
		t.Helper()
		var events []cloudevents.Event
		for n := range len(want) + 1 {
			text, err := next()
			var e cloudevents.Event
			if err == nil {
				err = json.Unmarshal(text, &e)
			}
			switch {
			case err != nil:
				t.Fatalf("%s: %s, %v", way, text, err)
			case n > 0:
				events = append(events, e)
			case e.Validate() != nil || e.Type() != "io.github.rshub.cursor":
				t.Errorf("%s: got first event\n%s, want a cursor", way, e)
			}
		}
		check(way, events)
	}
	follow("a WebSocket", func() ([]byte, error) { _, text, err := ws.ReadMessage(); return text, err })
	lines := bufio.NewScanner(stream.Body)
	follow("an event stream", func() ([]byte, error) {
		for lines.Scan() {
			if data, ok := strings.CutPrefix(lines.Text(), "data: "); ok {
				return []byte(data), nil
			}
		}
		return nil, lines.Err()
	})
	r.Header.Set("Accept", "application/cloudevents-batch+json")
	page, err := hubtest.Client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer page.Body.Close()
	events, err := cehttp.NewEventsFromHTTPResponse(page)
	if err != nil {
		t.Fatal(err)
	}
	check("a page", events)

	// The ID of an event is a cursor in all other formats.
	var rest struct{ Changes []struct{ Loc string } }
	response := hubtest.Must(t, http.StatusOK, http.MethodGet, topic+"?since="+events[2].ID(), nil, "Accept: application/json")
	if err := json.Unmarshal(response.Body, &rest); err != nil || len(rest.Changes) != 1 || rest.Changes[0].Loc != "https://example.org/d" {
		t.Errorf("got page %s, %v after the third event, want the fourth", response.Body, err)
	}
}
