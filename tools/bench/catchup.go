//go:build linux

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"time"
)

// together is the number of followers that catch up at the same time.
const together = 100

// A catchUpLoad is a number of followers that catch up.
type catchUpLoad struct {
	behind    int // changes
	by        int // how many were published together
	followers int
	zstd      bool // they take compressed messages; the floor sends plain ones
}

// catchup measures a follower that is far behind: by batches, and by changes that were
// published one by one, each a block of its own. Then it measures many followers at once,
// and a follower that takes compressed messages.
func (b *bench) catchup(t *table) {
	figures := []metric{perSecond("changes").should(aim{limit: 200_000, least: true}), cpuEach("change")}
	for _, n := range []int{100, 1} {
		b.catchUp(t, fmt.Sprintf("%s behind, published by %d", count(b.behind), n), catchUpLoad{b.behind, n, 1, false}, figures...)
	}
	behind := b.behind / 10
	b.catchUp(t, fmt.Sprintf("%d followers at once, each %s behind", together, count(behind)), catchUpLoad{behind, 100, together, false},
		perSecond("deliveries"), cpuEach("delivery"))
	b.catchUp(t, fmt.Sprintf("%s behind, compressed", count(b.behind)), catchUpLoad{b.behind, 100, 1, true},
		perSecond("changes"), cpuEach("change"), each(0, "bytes/change").should(aim{limit: .25, ratio: true}))
	b.catchUp(t, fmt.Sprintf("%d followers at once, compressed", together), catchUpLoad{behind, 100, together, true},
		perSecond("deliveries"), cpuEach("delivery"))
}

// catchUp measures followers that catch up.
func (b *bench) catchUp(t *table, what string, c catchUpLoad, figures ...metric) {
	const path = setPath + "?since=start"
	dir := b.dir()
	b.fillDisk(dir, c.behind, c.by, 10_000)
	ours := b.rshub(dir)
	// The floor sends what rshub sends. A first round records it, and fills the caches.
	var sent []byte
	b.follow(ours, path, catchUpLoad{c.behind, c.by, 1, false}, &sent)
	name := filepath.Join(b.dir(), "sent")
	must(os.WriteFile(name, sent, 0o644))
	floor := b.floor("replay", name)
	b.compare(t, what, figures,
		func() sample { return b.follow(floor, "/", c, nil) },
		func() sample { return b.follow(ours, path, c, nil) })
}

// follow follows from the start until nothing is missing. It records the frames, if it is
// told where. It counts deliveries.
func (b *bench) follow(s *server, path string, c catchUpLoad, frames *[]byte) sample {
	r := b.newReader()
	r.zstd = c.zstd
	r.handle = func(s *subscriber, body []byte, _ int64) int {
		if frames != nil {
			*frames = appendFrame(*frames, body)
		}
		return r.batch(s, body)
	}
	time.Sleep(settle / 3) // until what was before is over
	f := measure(func() {
		must(r.connect(s.addr, path, false, c.followers))
		must(r.await(b.ctx, int64(c.behind)))
	}, s)
	f.count = float64(c.behind * c.followers)
	f.each = []float64{float64(r.bytes) / f.count}
	must(r.check())
	must(r.close())
	return f
}
