package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/rshub/rshub/e2e/internal/hubtest"
)

// A framework is a follower of a framework topic by long poll, at one hub after another.
type framework struct {
	topic  string // behind the URL of a hub
	cursor string
	told   []told
}

type told struct {
	Position                uint64
	Loc, Capability, Change string
}

// reads reads on from the cursor at a hub. It waits for what comes.
func (f *framework) reads(ctx context.Context, h *hubtest.Hub) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, h.URL+f.topic+"?wait=2s&since="+f.cursor, nil)
	if err != nil {
		return err
	}
	r.Header.Set("Accept", "application/json")
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		return errors.New(resp.Status)
	}
	var page struct {
		Cursor  string
		Changes []told
	}
	if err := json.NewDecoder(resp.Body).Decode(&page); err != nil {
		return err
	}
	f.cursor, f.told = page.Cursor, append(f.told, page.Changes...)
	return nil
}

// closed are the names of the Change Lists that the follower was told are closed.
func (f *framework) closed() (names []string) {
	for _, e := range f.told {
		if e.Capability == "changelist" && e.Change == "updated" {
			names = append(names, e.Loc[strings.LastIndexByte(e.Loc, '/')+1:])
		}
	}
	return names
}

// TestFramework follows the framework topic of a set at two hubs, while each is killed once. One
// hub at a time looks for what is to be told; whichever it is, all is told, in one order, once.
func TestFramework(t *testing.T) {
	t.Parallel()
	const set, lists = "told", 12
	c := hubtest.StartCluster(t, 2, "RSHUB_CHANGELIST_SIZE=10")
	publish := func(h *hubtest.Hub, name string) { hubtest.Publish(t, h, set, hubtest.Changes(name, 10)) }
	publish(c.Hubs[0], "before") // nobody follows yet: it is not told
	followers := []*framework{{topic: "/sets/" + set + "/framework", cursor: "now"}, {topic: "/sets/" + set + "/framework", cursor: "now"}}
	for i, f := range followers {
		if err := f.reads(t.Context(), c.Hubs[i]); err != nil {
			t.Fatal(err)
		}
	}
	var wg sync.WaitGroup
	reading, stop := context.WithCancel(t.Context())
	for i, f := range followers {
		wg.Go(func() {
			for reading.Err() == nil {
				_ = f.reads(reading, c.Hubs[i]) // the hub may be away, and is asked again
			}
		})
	}
	for i := range lists {
		h := c.Hubs[i%2]
		publish(h, fmt.Sprint("list-", i))
		if i == 3 || i == 8 {
			h.Kill()
			publish(c.Hubs[1-i%2], fmt.Sprint("without-", i))
			h.Start(t)
		}
	}
	stop()
	wg.Wait()
	for i, f := range followers {
		hubtest.Until(t, fmt.Sprint("all lists are told at hub ", i), func() error {
			if err := f.reads(t.Context(), c.Hubs[1-i]); err != nil { // which goes on from the other's cursor
				return err
			}
			if n := len(f.closed()); n < lists+2 {
				return fmt.Errorf("%d are", n)
			}
			return nil
		})
	}
	var want []string
	for _, it := range hubtest.Document(t, c.Hubs[0].URL+"/sets/"+set+"/changelist-index.xml").Items {
		want = append(want, it.Loc[strings.LastIndexByte(it.Loc, '/')+1:])
	}
	want = want[1 : lists+3] // the first was closed before, and the last is open
	for i, f := range followers {
		if got := f.closed(); !slices.Equal(got, want) {
			t.Errorf("the follower of hub %d was told that these are closed: %q, and it is %q", i, got, want)
		}
		for j, e := range f.told {
			if e.Position != f.told[0].Position+uint64(j) {
				t.Errorf("behind %+v comes %+v", f.told[j-1], e)
			}
		}
	}
	if !slices.Equal(followers[0].told, followers[1].told) {
		t.Errorf("one hub told %+v, and the other %+v", followers[0].told, followers[1].told)
	}
}
