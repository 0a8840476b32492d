package callback_test

import (
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rshub/rshub/callback"
	"github.com/rshub/rshub/callback/subscription"
	"github.com/rshub/rshub/changelog"
	"github.com/rshub/rshub/feed"
)

var stamped = regexp.MustCompile(`<rs:md h:delivery="(\d+)"(?: h:gap="([^"]*)")? `)

// number returns the number of a delivery, and the gap that its body names.
func (d *delivered) number(t *testing.T) (number uint64, gap string) {
	t.Helper()
	found := stamped.FindAllSubmatch(d.body, -1)
	if len(found) != 1 {
		t.Fatalf("the body has %d numbers, want 1: %.400s", len(found), d.body)
	}
	number, err := strconv.ParseUint(string(found[0][1]), 10, 63)
	if err != nil {
		t.Fatal(err)
	}
	return number, string(found[0][2])
}

// The number of a delivery is the same in each retry of a cut, and otherwise rises for a
// callback, whatever happens to its subscription.
func TestDeliveryNumber(t *testing.T) {
	for _, tt := range []struct {
		name   string
		happen func(t *testing.T, w *world, c *callee, id subscription.ID)
	}{
		{"nothing", func(*testing.T, *world, *callee, subscription.ID) {}},
		{"restart", func(_ *testing.T, w *world, _ *callee, _ subscription.ID) {
			w.shutdown()
			w.start(callback.Options{})
		}},
		{"crash before the progress was saved", func(_ *testing.T, w *world, _ *callee, _ subscription.ID) {
			w.pass(time.Millisecond)
			w.crash()
			w.start(callback.Options{})
		}},
		{"renewal", func(_ *testing.T, w *world, c *callee, _ subscription.ID) {
			w.sent(subscription.Request{Mode: subscription.Subscribe, Callback: c.url, Terms: subscription.Terms{Secret: "new"}})
		}},
		{"move", func(_ *testing.T, w *world, c *callee, _ subscription.ID) {
			w.sent(subscription.Request{Mode: subscription.Move, Callback: c.url, Start: w.head()})
		}},
		{"the callback subscribes again", func(t *testing.T, w *world, c *callee, id subscription.ID) {
			w.sent(subscription.Request{Mode: subscription.Unsubscribe, Callback: c.url})
			if !w.gone(id) {
				t.Fatal("the subscription still exists")
			}
			w.subscribe(c)
		}},
		{"it subscribes again after a restart", func(_ *testing.T, w *world, c *callee, _ subscription.ID) {
			w.sent(subscription.Request{Mode: subscription.Unsubscribe, Callback: c.url})
			w.pass(time.Second)
			w.crash()
			w.start(callback.Options{})
			w.subscribe(c)
		}},
		{"restore of an older record", func(t *testing.T, w *world, _ *callee, id subscription.ID) {
			w.pass(saveEvery)
			keep := w.log.Bucket("callback")
			key := "record/" + string(id[:]) + "/progress"
			old, err := keep.Get(t.Context(), key)
			ok(t, err)
			for i := range 10 {
				w.published(fmt.Sprint("lost", i), 1)
			}
			w.pass(saveEvery)
			w.crash()
			ok(t, keep.Apply(t.Context(), map[string][]byte{key: old}, false))
			w.start(callback.Options{})
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := newLongWorld(t, callback.Options{})
				c, id := w.subscribed()
				w.published("a", 1)
				w.pass(time.Millisecond)
				w.published("b", 2)
				tt.happen(t, w, c, id)
				c.says(status(http.StatusInternalServerError))
				w.published("c", 1)
				w.pass(time.Minute)
				c.says(nil)
				w.pass(time.Minute)
				w.published("d", 1)
				var numbers []uint64
				for _, d := range c.tries {
					n, gap := d.number(t)
					if gap != "" {
						t.Errorf("delivery %d names the gap %q, want none", n, gap)
					}
					numbers = append(numbers, n)
				}
				if !slices.IsSorted(numbers) || len(numbers) < 6 {
					t.Errorf("the numbers are %d, want six or more that do not fall", numbers)
				}
				of := map[uint64]string{}
				for i, d := range c.tries {
					if body, known := of[numbers[i]]; known && body != string(d.body) {
						t.Errorf("two deliveries have the number %d", numbers[i])
					}
					of[numbers[i]] = string(d.body)
				}
				if len(of) == len(numbers) {
					t.Error("no delivery was repeated under its number")
				}
				w.pass(saveEvery)
				if r := w.saved(id); r.Delivery != numbers[len(numbers)-1] {
					t.Errorf("saved is the number %d, want %d", r.Delivery, numbers[len(numbers)-1])
				}
			})
		})
	}
}

// The body names the gap that the header names, so that the signature covers it.
func TestGapInTheBody(t *testing.T) {
	inWorld(t, callback.Options{}, func(t *testing.T, w *world) {
		ok(t, w.log.Make(t.Context(), "demo", feed.Description{}, 10))
		c, _ := w.subscribed()
		w.published("a", 5)
		c.says(status(http.StatusInternalServerError))
		w.published("b", 60)
		time.Sleep(time.Minute)
		if removed, err := w.log.Trim(t.Context(), "demo", changelog.Retention{Count: 20}); err != nil || removed == 0 {
			t.Fatalf("Trim() = %d, %v", removed, err)
		}
		w.crash() // otherwise the window still has all of it
		w.start(callback.Options{})
		w.sent(subscription.Request{Mode: subscription.Retry, Callback: c.url}) // the next try may be due only in a minute
		d := c.last()
		if _, gap := d.number(t); gap == "" || gap != d.header.Get("RS-Gap") {
			t.Errorf("h:gap = %q, want %q as in RS-Gap", gap, d.header.Get("RS-Gap"))
		}
		c.says(nil)
		w.sent(subscription.Request{Mode: subscription.Retry, Callback: c.url})
		w.published("c", 1)
		if _, gap := c.last().number(t); gap != "" {
			t.Errorf("h:gap = %q, want none", gap)
		}
	})
}
