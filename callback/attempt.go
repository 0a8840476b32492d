package callback

import (
	"time"
)

// An attempt is an Attempt in less space: there are up to maxAttempts of them
// for each subscription.
type attempt struct {
	at      int64 // microseconds since 1970
	took    time.Duration
	err     string
	changes int32
	status  int16
	kind    uint8 // in kinds
}

var kinds = [...]string{"deliver", string(Subscribe), string(Unsubscribe), "denied"}

func pack(a Attempt) attempt {
	p := attempt{at: a.At.UnixMicro(), took: a.Took, err: a.Error, changes: int32(a.Changes), status: int16(a.Status)}
	for i, k := range kinds {
		if a.Kind == k {
			p.kind = uint8(i)
		}
	}
	return p
}

func (p attempt) unpack() Attempt {
	return Attempt{At: time.UnixMicro(p.at).UTC(), Kind: kinds[p.kind], Status: int(p.status), Took: p.took, Changes: int(p.changes), Error: p.err}
}

// attempts are the newest ones, oldest first.
type attempts []attempt

func packAll(all []Attempt) attempts {
	if len(all) == 0 {
		return nil
	}
	packed := make(attempts, len(all))
	for i, a := range all {
		packed[i] = pack(a)
	}
	return packed
}

func (a attempts) unpack() []Attempt {
	if len(a) == 0 {
		return nil
	}
	all := make([]Attempt, len(a))
	for i, p := range a {
		all[i] = p.unpack()
	}
	return all
}

// delivered reports whether the last delivery among them succeeded, and soon.
func (a attempts) delivered() bool {
	for i := len(a) - 1; i >= 0; i-- {
		if kinds[a[i].kind] == "deliver" {
			return a[i].err == "" && a[i].took <= slowAfter
		}
	}
	return false
}

func (a *attempts) add(t Attempt) {
	if len(*a) == maxAttempts {
		copy(*a, (*a)[1:])
		(*a)[maxAttempts-1] = pack(t)
		return
	}
	grown := make(attempts, len(*a)+1) // without spare room: most stay few
	copy(grown, *a)
	grown[len(*a)] = pack(t)
	*a = grown
}
