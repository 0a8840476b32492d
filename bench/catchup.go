//go:build linux

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"time"
)

// catchup measures a follower that is far behind: by batches, and by changes
// that were published one by one, each a block of its own.
func (b *bench) catchup(t *table) {
	const path = setPath + "?since=start"
	for _, n := range []int{100, 1} {
		dir := b.dir()
		b.fillDisk(dir, b.behind, n, 10_000)
		ours := b.rshub(dir)
		// The floor sends what rshub sends. A first round records it, and fills the caches.
		var sent []byte
		b.follow(ours, path, &sent)
		name := filepath.Join(b.dir(), "sent")
		must(os.WriteFile(name, sent, 0o644))
		floor := b.floor("replay", name)
		b.compare(t, fmt.Sprintf("%s behind, published by %d", count(b.behind), n),
			[]metric{perSecond("changes").should(aim{limit: 200_000, least: true}), cpuEach("change")},
			func() sample { return b.follow(floor, "/", nil) },
			func() sample { return b.follow(ours, path, nil) })
	}
}

// follow follows from the start until nothing is missing. It records the frames, if it is
// told where.
func (b *bench) follow(s *server, path string, frames *[]byte) sample {
	r := b.newReader()
	r.handle = func(s *subscriber, body []byte, _ int64) int {
		if frames != nil {
			*frames = appendFrame(*frames, body)
		}
		return r.batch(s, body)
	}
	time.Sleep(settle / 3) // until what was before is over
	f := measure(func() {
		must(r.connect(s.addr, path, false, 1))
		must(r.await(b.ctx, int64(b.behind)))
	}, s)
	f.count = float64(b.behind)
	must(r.check())
	must(r.close())
	return f
}
