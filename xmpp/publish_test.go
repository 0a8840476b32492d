package xmpp

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rshub/rshub/changelog"
	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/metricstest"
	"github.com/rshub/rshub/resourcesync"
)

// TestInOrder publishes to a node that is made first. Each item begins where the one before
// ends, and the cursor is that of the last one.
func TestInOrder(t *testing.T) {
	inWorld(t, func(w *world) {
		w.start(Options{})
		synctest.Wait()
		if got := w.fake.got; len(got) != 1 || !got[0].creates || !got[0].configured || got[0].node != "demo" || got[0].From != account.Domain || got[0].To != account.Service {
			t.Fatalf("it began with %+v", got)
		}
		w.publish("a", "b")
		synctest.Wait()
		head := w.publish("c")
		w.is("|ab|c")
		items := w.fake.published()
		if items[0].payload.Md.After != "0-0" || items[1].payload.Md.After != items[0].item || items[1].item != head.String() || items[1].payload.Md.Cursor != head.String() {
			t.Errorf("the items are %+v", items)
		}
		w.kept(head)
		w.stop()

		// It goes on behind the cursor, and not at the head.
		w.publish("d")
		w.start(Options{Topics: true})
		w.is("|ab|c|d")
		if node := w.fake.published()[2].node; node != "https://hub.example.org/sets/demo/changes" {
			t.Errorf("the node is %s", node)
		}
		values := metricstest.Values(t, w.metrics)
		for name, want := range map[string]float64{
			"rshub_xmpp_connected": 1, "rshub_xmpp_claims": 1, "rshub_xmpp_failing": 0, `rshub_followers{kind="xmpp"}`: 1,
			`rshub_deliveries_total{kind="xmpp"}`: 1, `rshub_delivered_changes_total{kind="xmpp"}`: 1, `rshub_follower_lag_changes{kind="xmpp"}`: 0,
		} {
			if values[name] != want {
				t.Errorf("%s is %v, want %v", name, values[name], want)
			}
		}
	})
}

// TestBegins begins at the head of a set that was there before, and keeps that at once.
func TestBegins(t *testing.T) {
	inWorld(t, func(w *world) {
		w.fake.down = true
		head := w.publish("old")
		w.start(Options{})
		synctest.Wait()
		w.kept(head)
		w.publish("new")
		synctest.Wait()
		if v := metricstest.Values(t, w.metrics); v["rshub_xmpp_failing"] != 1 || v[`rshub_follower_lag_changes{kind="xmpp"}`] != 1 || v[`rshub_xmpp_failures_total{reason="connection"}`] == 0 {
			t.Errorf("the metrics are %v", v)
		}
		w.fake.set(func() { w.fake.down = false })
		time.Sleep(lastRetry)
		w.is("|new")
	})
}

// TestAgain sends the same item again after each fault, and moves the cursor only after an
// answer.
func TestAgain(t *testing.T) {
	for name, fault := range map[string]func(w wanted) string{
		"the connection ends": func(wanted) string { return drop },
		"no answer":           func(wanted) string { return silence },
		"an answer of another": func(w wanted) string {
			return fmt.Sprintf("<iq type='result' id='%s' from='mallory@example.net'/>", w.ID)
		},
		"another answer":       func(w wanted) string { return fmt.Sprintf("<iq type='result' id='1' from='%s'/>", w.To) },
		"an error that passes": func(w wanted) string { return refused(w, "resource-constraint", "") },
		"an error for ever":    func(w wanted) string { return refused(w, "forbidden", "") },
		"a stream error": func(wanted) string {
			return "<stream:error><system-shutdown xmlns='" + nsStreamErrs + "'/></stream:error></stream:stream>"
		},
		"a document type":       func(wanted) string { return "<!DOCTYPE a>" },
		"not XML":               func(wanted) string { return "<iq </iq>" },
		"the end of the stream": func(wanted) string { return "</stream:stream>" },
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				broken := true
				w.fake.answer = func(_ int, got wanted) string {
					if got.creates || !broken {
						return ""
					}
					return fault(got)
				}
				w.start(Options{})
				synctest.Wait()
				w.publish("a")
				w.publish("b")
				synctest.Wait()
				w.kept(feed.Cursor{})
				time.Sleep(time.Minute)
				w.kept(feed.Cursor{})
				head := w.publish("c")
				w.fake.set(func() { broken = false })
				time.Sleep(slowRetry + time.Minute)
				w.kept(head)
				items := w.fake.published()
				for i, it := range items {
					if i > 0 && it.payload.Md.After != items[i-1].item && it.item != items[i-1].item {
						t.Errorf("item %s goes on after %s, and the one before is %s", it.item, it.payload.Md.After, items[i-1].item)
					}
				}
				if len(items) > 15 || items[len(items)-1].item != head.String() {
					t.Errorf("it published %d items, the last is %s", len(items), items[len(items)-1].item)
				}
				if v := metricstest.Values(t, w.metrics); v["rshub_xmpp_failing"] != 0 || v["rshub_xmpp_retries_total"] == 0 {
					t.Errorf("the metrics are %v", v)
				}
				if !strings.Contains(w.logged.String(), `"level":"WARN"`) || strings.Contains(w.logged.String(), account.Secret) {
					t.Error(w.logged)
				}
			})
		})
	}
}

// TestNode makes a node again that is gone, without options if the service takes none, and
// publishes to one that it may not make.
func TestNode(t *testing.T) {
	inWorld(t, func(w *world) {
		there := false
		w.fake.answer = func(_ int, got wanted) string {
			switch {
			case got.creates && got.configured:
				return refused(got, "not-acceptable", "")
			case got.creates && there:
				return refused(got, "conflict", "")
			case got.creates:
				there = true
			case !there:
				return refused(got, "item-not-found", "")
			}
			return ""
		}
		w.start(Options{})
		synctest.Wait()
		w.publish("a")
		w.is("|a")
		w.fake.set(func() { there = false })
		head := w.publish("b")
		w.is("|a|b|b")
		w.kept(head)

		w.fake.set(func() {
			w.fake.answer = func(_ int, got wanted) string {
				if got.creates {
					return refused(got, "forbidden", "")
				}
				return ""
			}
		})
		w.fake.hang()
		time.Sleep(lastRetry)
		head = w.publish("c")
		w.is("|a|b|b|c")
		w.kept(head)
	})
}

// TestSlowly asks seldom where only an operator can help, and says what to do.
func TestSlowly(t *testing.T) {
	inWorld(t, func(w *world) {
		w.fake.greeting = "<stream:error><not-authorized xmlns='" + nsStreamErrs + "'/></stream:error></stream:stream>"
		w.start(Options{})
		time.Sleep(slowRetry * 4)
		n := 0
		w.fake.set(func() { n = w.fake.dials })
		if n < 3 || n > 8 {
			t.Errorf("it connected %d times", n)
		}
		if !strings.Contains(w.logged.String(), "the secret of the component is the same there") {
			t.Error(w.logged)
		}
	})
}

// TestBig sends smaller stanzas after one was too big, and says what it leaves out.
func TestBig(t *testing.T) {
	for name, tooBig := range map[string]func(w wanted) string{
		"an answer": func(w wanted) string { return refused(w, "not-acceptable", "payload-too-big") },
		"a stream error": func(wanted) string {
			return "<stream:error><policy-violation xmlns='" + nsStreamErrs + "'/></stream:error>"
		},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				w.fake.answer = func(_ int, got wanted) string {
					if got.size > 20_000 {
						return tooBig(got)
					}
					return ""
				}
				w.fake.down = true
				w.publish("x")
				w.start(Options{})
				synctest.Wait()
				names := make([]string, 300)
				for i := range names {
					names[i] = fmt.Sprint(i)
				}
				w.publish(names...)
				w.publish(strings.Repeat("long", 4500))
				head := w.publish("z")
				w.fake.set(func() { w.fake.down = false })
				time.Sleep(10 * time.Minute)
				w.kept(head)
				text := w.locs()
				if !strings.HasSuffix(text, "|gap 302-302|z") {
					t.Errorf("the end is %s", text[max(0, len(text)-100):])
				}
				if v := metricstest.Values(t, w.metrics); v["rshub_xmpp_gaps_total"] != 1 {
					t.Errorf("the metrics are %v", v)
				}
			})
		})
	}
}

// TestGone tells which changes the memory removed before they were published.
func TestGone(t *testing.T) {
	inWorld(t, func(w *world) {
		if err := w.log.Make(w.t.Context(), "demo", feed.Description{}, 2); err != nil {
			t.Fatal(err)
		}
		w.publish("a")
		w.start(Options{})
		synctest.Wait()
		w.stop()
		for _, name := range []string{"b", "c", "d", "e", "f", "g"} {
			w.publish(name)
		}
		if _, err := w.log.Trim(w.t.Context(), "demo", changelog.Retention{Count: 2}); err != nil {
			t.Fatal(err)
		}
		st, err := w.log.State(w.t.Context(), "demo")
		if err != nil || st.Floor.Position == 0 {
			t.Fatal(st, err)
		}
		w.start(Options{})
		w.is(fmt.Sprintf("|gap 2-%d|%s", st.Floor.Position, "abcdefg"[st.Floor.Position:]))
		w.kept(st.Head)

		// A set that was deleted and made again is another one.
		if err := w.hub.Delete(w.t.Context(), "demo"); err != nil {
			t.Fatal(err)
		}
		before := w.locs()
		time.Sleep(time.Minute)
		head := w.publish("new")
		time.Sleep(time.Minute)
		w.is(before + "|gap 8-|new")
		w.kept(head)
	})
}

// TestPrivate holds a set back while it is private.
func TestPrivate(t *testing.T) {
	inWorld(t, func(w *world) {
		w.start(Options{})
		synctest.Wait()
		w.publish("a")
		w.is("|a")
		if err := w.log.Describe(w.t.Context(), "demo", feed.Description{Private: true}); err != nil {
			t.Fatal(err)
		}
		w.publish("b")
		time.Sleep(time.Minute)
		w.is("|a")
		if !strings.Contains(w.logged.String(), errPrivate.Error()) {
			t.Error(w.logged)
		}
		if err := w.log.Describe(w.t.Context(), "demo", feed.Description{}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		w.is("|a|b")
	})
}

// TestAsked answers what others ask the component.
func TestAsked(t *testing.T) {
	inWorld(t, func(w *world) {
		answered := 0
		w.fake.answer = func(_ int, got wanted) string {
			switch {
			case got.Type == "error" && got.ID == "q<1" && got.To == "a@example.net/x":
				answered++
				return silence
			case got.creates:
				return fmt.Sprintf("<iq type='get' id='q&lt;1' from='a@example.net/x' to='%s'><ping xmlns='urn:xmpp:ping'/></iq><message from='b'><body>hello</body></message><iq type='result' id='%s' from='PubSub.example.org'/>", got.From, got.ID)
			}
			return ""
		}
		w.start(Options{})
		synctest.Wait()
		w.publish("a")
		w.is("|a")
		if answered != 1 {
			t.Errorf("it answered %d times", answered)
		}
	})
}

// TestCut holds the cutter against a slow and obvious one.
func TestCut(t *testing.T) {
	c := cutter{"demo", links(base, "demo")}
	lengths := []int{10, 300, 20, 2_000, 50, 9_000, 12_000, 30, 40, 50, 12_000, 12_000, 5}
	for _, perBatch := range []int{1, 3, 1500} {
		for _, room := range []int{8_000, 10_000, 64_000} {
			var entries []feed.Entry
			for i := range 1300 {
				change := resourcesync.Change{Loc: "https://example.org/" + strings.Repeat("x", lengths[i%len(lengths)]) + "?a&b", Change: resourcesync.Updated}
				if i > 100 {
					change.Loc = "urn:x:a"
				}
				entries = append(entries, feed.Entry{Cursor: feed.Cursor{Position: uint64(i + 8), Micros: 1_700_000_000_000_000 + int64(i)}, Change: change})
			}
			after := feed.Cursor{Position: 7, Micros: 1_699_999_999_999_999}
			backlog := &backlog{at: after}
			for i, at := 0, after; i < len(entries); i += perBatch {
				some := entries[i:min(i+perBatch, len(entries))]
				backlog.batches = append(backlog.batches, &feed.Batch{Set: "demo", After: at, Cursor: some[len(some)-1].Cursor, Entries: some})
				at = some[len(some)-1].Cursor
			}
			for len(entries) > 0 {
				got := c.next(backlog, room)
				n := 0
				widest := len(c.payload(&widest, true, nil))
				for size := widest; n < min(len(entries), maxChanges); n++ {
					if size += len(feed.NewXMLWriter().AppendEntry(nil, &entries[n])); size > room {
						break
					}
				}
				if got == nil {
					t.Fatalf("nothing is cut, and %d entries are left", len(entries))
				}
				if n == 0 {
					if want := fmt.Sprint(after.Position+1, "-", after.Position+1); got.gap != want || got.changes != 0 {
						t.Fatalf("the gap is %q with %d changes, want %q", got.gap, got.changes, want)
					}
					n = 1
				} else {
					b := &feed.Batch{Set: "demo", After: after, Cursor: entries[n-1].Cursor, Entries: entries[:n]}
					want := b.XML()[bytes.IndexByte(b.XML(), '\n')+1:]
					links := []byte(">\n  " + `<rs:ln rel="up" href="https://hub.example.org/sets/demo/capabilitylist.xml"/>` + "\n  " + `<rs:ln rel="self" href="https://hub.example.org/sets/demo/changes"/>` + "\n")
					want = bytes.Replace(want, []byte(">\n"), links, 1)
					if !bytes.Equal(got.payload, want) {
						t.Fatalf("%d a batch, room %d: the payload is\n%.600s\nwant\n%.600s", perBatch, room, got.payload, want)
					}
				}
				if len(got.payload) > room || got.after != after || got.cursor != entries[n-1].Cursor {
					t.Fatalf("%d bytes for %d, %v to %v", len(got.payload), room, got.after, got.cursor)
				}
				after, entries = entries[n-1].Cursor, entries[n:]
			}
			if got := c.next(backlog, room); got != nil {
				t.Errorf("it cuts %v after the end", got.cursor)
			}
		}
	}
}

// TestDiverged says once, in an item of its own, that the log has lost its tail.
func TestDiverged(t *testing.T) {
	batch := func(first, last uint64, diverged bool) *feed.Batch {
		var changes []resourcesync.Change
		for range last - first + 1 {
			changes = append(changes, resourcesync.Change{Loc: "urn:x:a", Change: resourcesync.Updated})
		}
		b := feed.NewBatch("demo", feed.Cursor{Position: first - 1, Micros: int64(1000 + first - 1)}, feed.Cursor{Position: last, Micros: int64(1000 + last)}, changes)
		b.Diverged = diverged
		return b
	}
	b := &backlog{at: feed.Cursor{Position: 9, Micros: 1009}, batches: []*feed.Batch{batch(10, 11, false), batch(8, 9, true), batch(10, 12, false)}}
	c := cutter{"demo", nil}
	text := ""
	for n := c.next(b, MinStanza); n != nil; n = c.next(b, MinStanza) {
		text += fmt.Sprintf("%d-%d %v;", n.after.Position, n.cursor.Position, bytes.Contains(n.payload, []byte(`h:diverged="true"`)))
	}
	if text != "9-11 false;7-12 true;" {
		t.Error(text)
	}
}

// TestFailure says which errors are waited for.
func TestFailure(t *testing.T) {
	for _, test := range []struct {
		err   error
		after int
		want  time.Duration
	}{
		{errors.New("x"), 1, time.Second}, {errors.New("x"), 3, 4 * time.Second}, {errors.New("x"), 99, lastRetry},
		{&Failure{Condition: "forbidden"}, 1, slowRetry}, {fmt.Errorf("y: %w", &Failure{Condition: "conflict", Stream: true}), 2, 2 * time.Second},
	} {
		if got := pause(test.after, test.err); got != test.want {
			t.Errorf("after %v it waits %v, want %v", test.err, got, test.want)
		}
	}
}
