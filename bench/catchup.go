//go:build linux

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"time"
)

// together is how many followers catch up at the same time.
const together = 100

// catchup measures a follower that is far behind: by batches, and by changes that were
// published one by one, each a block of its own. Then it measures many followers at once.
func (b *bench) catchup(t *table) {
	for _, n := range []int{100, 1} {
		b.catchUp(t, fmt.Sprintf("%s behind, published by %d", count(b.behind), n), b.behind, n, 1,
			perSecond("changes").should(aim{limit: 200_000, least: true}), cpuEach("change"))
	}
	behind := b.behind / 10
	b.catchUp(t, fmt.Sprintf("%d followers at once, each %s behind", together, count(behind)), behind, 100, together,
		perSecond("deliveries"), cpuEach("delivery"))
}

// catchUp measures followers that are behind by so many changes, which were published by n.
func (b *bench) catchUp(t *table, what string, behind, n, followers int, figures ...metric) {
	const path = setPath + "?since=start"
	dir := b.dir()
	b.fillDisk(dir, behind, n, 10_000)
	ours := b.rshub(dir)
	// The floor sends what rshub sends. A first round records it, and fills the caches.
	var sent []byte
	b.follow(ours, path, behind, 1, &sent)
	name := filepath.Join(b.dir(), "sent")
	must(os.WriteFile(name, sent, 0o644))
	floor := b.floor("replay", name)
	b.compare(t, what, figures,
		func() sample { return b.follow(floor, "/", behind, followers, nil) },
		func() sample { return b.follow(ours, path, behind, followers, nil) })
}

// follow follows from the start until nothing is missing. It records the frames, if it is
// told where. What is counted is deliveries.
func (b *bench) follow(s *server, path string, behind, followers int, frames *[]byte) sample {
	r := b.newReader()
	r.handle = func(s *subscriber, body []byte, _ int64) int {
		if frames != nil {
			*frames = appendFrame(*frames, body)
		}
		return r.batch(s, body)
	}
	time.Sleep(settle / 3) // until what was before is over
	f := measure(func() {
		must(r.connect(s.addr, path, false, followers))
		must(r.await(b.ctx, int64(behind)))
	}, s)
	f.count = float64(behind * followers)
	must(r.check())
	must(r.close())
	return f
}
