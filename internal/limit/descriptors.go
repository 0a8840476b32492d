package limit

import (
	"errors"
	"log/slog"
	"math"
)

// Descriptors say how the file descriptors that the process may have are shared out. Users
// must not use up all of them: without one, the store cannot write, probes find a dead
// hub, and operators find none.
type Descriptors struct {
	Users  int64 // connections of users; the rest is kept back
	One    int64 // of these, connections of one address; 0: any number
	Excess int64 // connections of users that are told that there are too many
	Ops    int64 // connections of probes and operators
	Idle   int   // connections to callbacks that are kept while nothing is sent; 0: the default
	good   int64 // a limit that would be enough
}

// What is kept back, besides connections to callbacks.
const (
	storeDescriptors = 640 // the store on the disk keeps 500 tables open, and writes to others; Redis and NATS need fewer
	opsDescriptors   = 128 // connections of probes and operators, files of tokens and certificates, lookups of names
	mostOps          = 64  // connections of probes and operators, of these
	mostExcess       = 64
	mostIdle         = 16_000
)

// share shares out limit descriptors. inFlight is how many requests to callbacks may be
// under way. At most half of the limit is kept back.
func share(limit, inFlight int64) Descriptors {
	needed := storeDescriptors + opsDescriptors + mostExcess + inFlight
	idle := min(mostIdle, max(limit/8, 1))
	users := limit - min(needed+idle, limit/2)
	return Descriptors{
		Users: users, One: users / 2, Excess: min(mostExcess, limit/16), Ops: min(mostOps, max(users/2, 1)), Idle: int(idle), good: (needed*8 + 2) / 3,
	}
}

// ShareDescriptors shares out the descriptors that the process may have. inFlight is how many
// requests to callbacks may be under way. It tells the log if the limit of the process is low.
// Where there is no such limit, or nobody knows it, connections are not bounded by it.
func ShareDescriptors(inFlight int64, log *slog.Logger) Descriptors {
	limit, err := descriptorLimit()
	if err != nil {
		if !errors.Is(err, errors.ErrUnsupported) {
			log.Warn("the limit of file descriptors is unknown, so connections are not bounded by it", "err", err)
		}
		return Descriptors{Users: math.MaxInt64, Ops: mostOps}
	}
	d := share(limit, inFlight)
	if limit < d.good {
		log.Warn("the limit of file descriptors is low: half of them are kept for the store, callbacks and operators", "limit", limit, "connections", d.Users, "good", d.good)
	}
	return d
}
