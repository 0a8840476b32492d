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
	maxSample     = 200 // maximum number of resources whose lastmod is remembered
	minSample     = 10  // minimum size of a sample that shows whether lastmod moves
	maxMovedPolls = 2   // after this many polls in a row in which more than half of the sample moved, lastmod is not trusted
)

// Trust records whether the lastmod in a list can be trusted. Many websites write the time of the
// request there. If it were trusted, each poll would publish the whole site.
type Trust struct {
	Sample map[string]time.Time `json:"sample,omitempty"` // lastmod, by a hash of the loc
	Moved  int                  `json:"moved,omitempty"`  // number of polls in a row in which more than half of the sample had moved
}

func (t *Trust) distrusts() bool { return t.Moved >= maxMovedPolls }

func (t *Trust) newSampler() *sampler {
	return &sampler{was: *t, sample: map[uint64]time.Time{}}
}

// A sampler computes the Trust during one poll.
type sampler struct {
	was    Trust
	sample map[uint64]time.Time // by the first bytes of a hash; only the lowest ones, so that each poll has the same sample
	most   uint64               // the highest hash in a full sample
}

// add adds a resource to the sample, if its hash is one of the lowest.
func (t *sampler) add(c *resourcesync.Change) {
	if c.Lastmod.IsZero() || c.Hash != "" {
		return
	}
	sum := sha256.Sum256([]byte(c.Loc))
	n := binary.BigEndian.Uint64(sum[:])
	if len(t.sample) == maxSample {
		if n >= t.most {
			return
		}
		delete(t.sample, t.most)
	}
	if t.sample[n] = c.Lastmod; len(t.sample) == maxSample {
		t.most = 0
		for k := range maps.Keys(t.sample) {
			t.most = max(t.most, k)
		}
	}
}

func (t *sampler) result(note func(string)) Trust {
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
	case both < minSample:
	case 2*moved > both:
		now.Moved = min(now.Moved+1, maxMovedPolls)
	default:
		now.Moved = 0
	}
	if now.distrusts() && !t.was.distrusts() {
		note("lastmod changes for most resources in each poll: it is ignored, so only new and deleted resources are found")
	}
	return now
}
