//go:build linux

package main

import (
	"bufio"
	"cmp"
	"fmt"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/rshub/rshub/callback/subscription"
	"github.com/rshub/rshub/claim"
	"github.com/rshub/rshub/feed"
)

var perSubscription = metric{name: "KB/subscription, RSS", limit: 2}

// idleSubscriptions measures the memory of subscriptions to which nothing is delivered,
// and compares it with the bytes of their texts.
func (b *bench) idleSubscriptions(t *table) error {
	const sets = 10
	n := b.subscriptions
	empty, err := b.dir()
	if err != nil {
		return err
	}
	defer os.RemoveAll(empty)
	full, err := b.dir()
	if err != nil {
		return err
	}
	defer os.RemoveAll(full)
	texts, err := b.fillSubscriptions(full, n, sets)
	if err = cmp.Or(err, b.fillDisk(empty, sets, 1, 10_000)); err != nil {
		return err
	}
	what := fmt.Sprintf("%s subscriptions, %d sets", format(float64(n)), sets)
	for range b.rounds {
		without, err := b.memoryOf(empty)
		if err != nil {
			return err
		}
		with, err := b.memoryOf(full)
		if err != nil {
			return err
		}
		if with.heap-without.heap < texts {
			return fmt.Errorf("the heap grew by %.0f bytes: the subscriptions are not there", with.heap-without.heap)
		}
		each := func(bytes float64) float64 { return bytes / 1024 / float64(n) }
		t.add(what, perSubscription, each(texts), each(with.rss-without.rss), notMeasured)
		t.add(what, metric{name: "KB/subscription, heap"}, each(texts), each(with.heap-without.heap), notMeasured)
	}
	return nil
}

// fillSubscriptions makes a memory with sets and subscriptions that are up to
// date in a data directory of rshub's. It returns the bytes of their callbacks,
// secrets and tokens.
func (b *bench) fillSubscriptions(dir string, n, sets int) (texts float64, err error) {
	log, err := memory(dir)
	if err != nil {
		return 0, err
	}
	defer func() { err = cmp.Or(err, log.Close()) }()
	heads := make([]feed.Cursor, sets)
	for i := range heads {
		set := fmt.Sprint("idle-", i)
		if err := b.fill(log, set, 1, 1, 10_000); err != nil {
			return 0, err
		}
		state, err := log.State(b.ctx, set)
		if err != nil {
			return 0, err
		}
		heads[i] = state.Head
	}
	claims, err := claim.OpenLocal(b.ctx, log.Keep("callback"), subscription.Shards)
	if err != nil {
		return 0, err
	}
	registry, err := subscription.OpenDisk(b.ctx, log.Keep("callback"), claims, nil)
	if err != nil {
		return 0, err
	}
	shards := make([]int, subscription.Shards)
	for i := range shards {
		shards[i] = i
	}
	held, err := claims.Acquire(b.ctx, shards)
	if err != nil {
		return 0, err
	}
	put := make([][]subscription.Record, subscription.Shards)
	now := time.Now()
	for i := range n {
		r := subscription.Record{Subscription: subscription.Subscription{
			Set: fmt.Sprint("idle-", i%sets), Callback: fmt.Sprintf("https://subscriber-%d.example.org/callbacks/resourcesync?key=%032x", i%1000, i),
			Secret: fmt.Sprintf("%032x", i), LeaseEnd: now.Add(24 * time.Hour), Token: fmt.Sprintf("%026d", i), Made: now, Renewed: now,
		}}
		r.Cursor = heads[i%sets]
		r.Last = []subscription.Attempt{{At: now, Kind: "deliver", Status: http.StatusOK, Took: time.Millisecond, Changes: 1}}
		texts += float64(len(r.Callback) + len(r.Secret) + len(r.Token))
		shard := r.ID().Shard()
		put[shard] = append(put[shard], r)
	}
	for _, c := range held {
		if err := registry.Commit(b.ctx, c, subscription.Changes{Put: put[c.Shard]}); err != nil {
			return 0, err
		}
	}
	return texts, nil
}

// A footprint is bytes of a process.
type footprint struct{ rss, heap float64 }

// memoryOf starts rshub and returns its memory once it has nothing more to do: the RSS as
// it is, and the heap after a garbage collection.
func (b *bench) memoryOf(dir string) (f footprint, err error) {
	s, err := b.rshub(dir)
	if err != nil {
		return f, err
	}
	defer s.stop()
	if err := b.rest(s); err != nil {
		return f, err
	}
	if f.rss, err = rssOf(s.pid); err != nil {
		return f, err
	}
	f.heap, err = readNumber("http://"+s.ops+"/debug/pprof/heap?gc=1&debug=1", "# HeapAlloc = ")
	return f, err
}

// readNumber returns the number that follows a prefix, in the line that begins with it.
func readNumber(url, prefix string) (float64, error) {
	resp, err := http.Get(url)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	lines := bufio.NewScanner(resp.Body)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		if text, ok := strings.CutPrefix(lines.Text(), prefix); ok {
			return strconv.ParseFloat(text, 64)
		}
	}
	return 0, cmp.Or(lines.Err(), fmt.Errorf("GET %s: there is no %s", url, prefix))
}
