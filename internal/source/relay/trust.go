package relay

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"maps"
	"time"

	"github.com/rshub/rshub/resourcesync"
)

const (
	samples    = 200 // the most resources whose lastmod is remembered
	leastMoves = 10  // the least resources in the sample to decide whether lastmod moves
	mostLooks  = 2   // after so many looks in a row at which more than half of the sample moved, lastmod is not trusted
)

// Trust says whether the lastmod in a list can be trusted. Many websites write the time
// of the request there. If it were trusted, each look would publish the whole site.
type Trust struct {
	Sample map[string]time.Time `json:"sample,omitempty"` // lastmod, by a hash of the loc
	Moved  int                  `json:"moved,omitempty"`  // looks in a row at which more than half of the sample had moved
}

func (t *Trust) distrusts() bool { return t.Moved >= mostLooks }

func (t *Trust) begin() *trusting {
	return &trusting{was: *t, sample: map[uint64]time.Time{}}
}

// A trusting computes the Trust during one look.
type trusting struct {
	was    Trust
	sample map[uint64]time.Time // by the first bytes of a hash; only the lowest ones, so that each look has the same sample
	most   uint64               // no resource with a higher hash belongs in the sample
}

// see adds a resource to the sample, if its hash is one of the lowest.
func (t *trusting) see(c *resourcesync.Change) {
	if c.Lastmod.IsZero() || c.Hash != "" {
		return
	}
	sum := sha256.Sum256([]byte(c.Loc))
	n := binary.BigEndian.Uint64(sum[:])
	if len(t.sample) == samples {
		if n >= t.most {
			return
		}
		delete(t.sample, t.most)
	}
	if t.sample[n] = c.Lastmod; len(t.sample) == samples {
		t.most = 0
		for k := range maps.Keys(t.sample) {
			t.most = max(t.most, k)
		}
	}
}

func (t *trusting) end(note func(string)) Trust {
	now := Trust{Sample: map[string]time.Time{}, Moved: t.was.Moved}
	both, moved := 0, 0
	for n, at := range t.sample {
		key := hex.EncodeToString(binary.BigEndian.AppendUint64(nil, n))
		now.Sample[key] = at
		if before, ok := t.was.Sample[key]; ok {
			both++
			if !before.Equal(at) {
				moved++
			}
		}
	}
	switch {
	case both < leastMoves:
	case 2*moved > both:
		now.Moved = min(now.Moved+1, mostLooks)
	default:
		now.Moved = 0
	}
	if now.distrusts() && !t.was.distrusts() {
		note("lastmod moves for most resources at each look: it is not believed, so only new and deleted resources are found")
	}
	return now
}
