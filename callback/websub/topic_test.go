package websub

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/rshub/rshub/access"
	"github.com/rshub/rshub/callback/subscription"
	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/memorytest"
)

// All topics of a set are subscribed to with the rights of the set, each as a subscription of
// its own, and operators see them together.
func TestTopicsOfASet(t *testing.T) {
	var opened []string
	var f *front
	f = newFront(t, Options{Open: func(ctx context.Context, topic string) error {
		if _, err := f.log.State(ctx, feed.SetOf(topic)); err != nil {
			return err
		}
		opened = append(opened, topic)
		return f.log.Make(ctx, topic, feed.Description{}, 100)
	}})
	memorytest.Fill(t, f.log, "demo", memorytest.Changes("a", 3))
	ask := func(topic string) (int, string) {
		return f.post(url.Values{"hub.mode": {"subscribe"}, "hub.topic": {base + "/sets/" + topic}, "hub.callback": {"https://a.example/cb"}}.Encode())
	}
	for topic, name := range map[string]string{"demo/changes": "demo", "demo/framework": "demo:framework", "demo/atom.xml": "demo:atom"} {
		if status, text := ask(topic); status != 202 {
			t.Fatalf("%s is answered %d %s", topic, status, text)
		}
		st, err := f.log.State(t.Context(), feed.LogOf(name))
		if err != nil {
			t.Fatal(err)
		}
		if r := f.newest(); r.Set != name || r.Start != st.Head {
			t.Errorf("%s: asked for is %+v", topic, r)
		}
	}
	if len(opened) != 1 || opened[0] != "demo:framework" {
		t.Errorf("opened are %q", opened)
	}
	for topic, want := range map[string]int{"none/framework": 404, "none/atom.xml": 404, "demo/other": 404, "demo:framework/changes": 404, "Demo/framework": 404} {
		if status, text := ask(topic); status != want {
			t.Errorf("%s is answered %d %s", topic, status, text)
		}
	}
	waiting, err := f.server.Waiting(t.Context(), "demo", "")
	if err != nil || len(waiting) != 3 {
		t.Errorf("%d requests wait: %v", len(waiting), err)
	}
	if status, text := f.post(url.Values{"hub.mode": {"publish"}, "hub.topic": {base + "/sets/demo/framework"}}.Encode()); status != 404 {
		t.Errorf("a ping of the framework topic is answered %d %s", status, text)
	}
	form := url.Values{"hub.mode": {"subscribe"}, "hub.topic": {base + "/sets/demo/framework"}, "hub.callback": {"https://a.example/cb"}}.Encode()
	if w := f.answer(httptest.NewRequest(http.MethodPost, "/hub", strings.NewReader(form)), access.Rights{}); w.Code != 403 {
		t.Errorf("without the right it is %d", w.Code)
	}

	var ids []subscription.ID
	for _, topic := range feed.Topics("demo") {
		record := subscription.Record{Subscription: subscription.Subscription{Set: topic, Callback: "https://a.example/cb", LeaseEnd: now.AddDate(0, 0, 1), Made: now}}
		f.put(record)
		ids = append(ids, record.ID())
	}
	first, more, err := f.server.list(t.Context(), "demo", subscription.ID{}, 2)
	if err != nil || len(first) != 2 || !more {
		t.Fatalf("the first page has %d, %t, %v", len(first), more, err)
	}
	rest, more, err := f.server.list(t.Context(), "demo", first[1].ID(), 2)
	if err != nil || len(rest) != 1 || more {
		t.Fatalf("the second page has %d, %t, %v", len(rest), more, err)
	}
	seen := map[subscription.ID]bool{first[0].ID(): true, first[1].ID(): true, rest[0].ID(): true}
	for _, id := range ids {
		if !seen[id] {
			t.Errorf("%v is on no page", id)
		}
	}
	v, err := f.server.view(t.Context(), &rest[0])
	if err != nil || !strings.HasPrefix(v.Topic, base+"/sets/demo/") {
		t.Errorf("it is shown as %+v, %v", v, err)
	}
	if _, err := f.log.State(t.Context(), "demo:atom"); !errors.Is(err, feed.ErrNoSet) {
		t.Errorf("Atom has a log of its own: %v", err)
	}
}
