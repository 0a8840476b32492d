package smoke

import (
	"testing"

	"github.com/rshub/rshub/e2e/internal/hubtest"
	"github.com/rshub/rshub/e2e/internal/trial"
)

// TestTransports publishes one change to followers with every transport: WebSocket, event stream,
// long poll, and a WebSub callback, which is verified first. All of them receive the same entry,
// and the cursor in the receipt.
func TestTransports(t *testing.T) {
	t.Parallel()
	const set, secret = "every-way", "a secret"
	h := hubtest.StartWebSub(t)
	before := hubtest.Publish(t, h, set, hubtest.Change("before"))

	tr := hubtest.NewTrial(t, h)
	topic := &trial.Topic{URL: h.Topic(set), Set: set}
	callback := tr.Callback("")
	v := tr.Subscribe(callback, topic, "hub.secret", secret)
	if v.Param("hub.topic") != topic.URL || v.Param("hub.mode") != "subscribe" || v.Challenge() == "" || trial.LeaseOf(&v) == 0 {
		t.Errorf("verification %s lacks a parameter", v.Target)
	}
	var followers []*hubtest.Follower
	for _, way := range hubtest.AllTransports {
		f := hubtest.Follow(t, h, way, set, "now")
		if at := f.WaitStart(t); at != before.Cursor {
			t.Errorf("start of the %s = %s, want %s", way, at, before.Cursor)
		}
		followers = append(followers, f)
	}

	r := hubtest.Publish(t, h, set, hubtest.Change("now"))
	memory := hubtest.ReadMemory(t, h, set)
	want := memory[1:]
	hubtest.WantTexts(t, "the memory", memory, []string{`{"change":"updated","loc":"https://example.org/before"}`, `{"change":"updated","loc":"https://example.org/now"}`})
	if at, err := h.CursorOf(want[0]); err != nil || at != r.Cursor || want[0].Position != 2 {
		t.Errorf("cursor of entry %+v = %s, %v, want %s as in the receipt", want[0], at, err, r.Cursor)
	}
	for _, f := range followers {
		hubtest.WantEntries(t, "the "+f.Transport, f.WaitEntries(t, 1), want)
		if at := f.CurrentCursor(); at != r.Cursor {
			t.Errorf("cursor of the %s = %s, want %s", f.Transport, at, r.Cursor)
		}
	}
	d := tr.WaitDelivery(callback, trial.MarkOf("https://example.org/now"))
	n := tr.Notification(d)
	hubtest.WantEntries(t, "the callback", n.Entries, want)
	if n.After != before.Cursor || n.Cursor != r.Cursor || d.Header.Get("RS-Previous") != "1" || d.Header.Get("RS-Position") != "2" || trial.SelfOf(&d) != topic.URL {
		t.Errorf("got delivery with cursor %s after %s and header %v, want %s after %s", n.Cursor, n.After, d.Header, r.Cursor, before.Cursor)
	}
	if err := trial.CheckSignature(&d, secret); err != nil {
		t.Error(err)
	}
}
