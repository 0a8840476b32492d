package limit

import (
	"errors"
	"log/slog"
	"math"
)

// Descriptors are the limits derived from the file descriptor limit of the process. Users must not use
// all descriptors: without a free one, the store cannot write, probes fail and operators cannot connect.
type Descriptors struct {
	Users  int64 // connections of users; the rest is reserved
	One    int64 // connections of one address; 0 means no limit
	Excess int64 // connections of users accepted only to be refused
	Ops    int64 // connections of probes and operators
	Idle   int   // idle connections to callbacks; 0 means the default
	enough int64 // recommended descriptor limit
}

// Reserved descriptors, besides connections to callbacks.
const (
	storeDescriptors = 640 // the store on the disk has 500 open tables and writes further files; Redis and NATS need fewer
	opsDescriptors   = 128 // connections of probes and operators, files of tokens and certificates, name lookups
	maxOps           = 64  // connections of probes and operators, included above
	maxExcess        = 64
	maxIdle          = 16_000
)

// share divides limit descriptors. inFlight is the maximum number of concurrent requests to callbacks. At
// most half of the limit is reserved.
func share(limit, inFlight int64) Descriptors {
	needed := storeDescriptors + opsDescriptors + maxExcess + inFlight
	idle := min(maxIdle, max(limit/8, 1))
	users := limit - min(needed+idle, limit/2)
	return Descriptors{
		Users: users, One: users / 2, Excess: min(maxExcess, limit/16), Ops: min(maxOps, max(users/2, 1)), Idle: int(idle), enough: (needed*8 + 2) / 3,
	}
}

// ShareDescriptors divides the descriptors of the process. inFlight is the maximum number of concurrent
// requests to callbacks. It logs a warning if the limit of the process is low. If the limit is unknown
// or does not exist, connections are not limited.
func ShareDescriptors(inFlight int64, log *slog.Logger) Descriptors {
	limit, err := descriptorLimit()
	if err != nil {
		if !errors.Is(err, errors.ErrUnsupported) {
			log.Warn("the limit of file descriptors is unknown, so connections are not limited", "err", err)
		}
		return Descriptors{Users: math.MaxInt64, Ops: maxOps}
	}
	d := share(limit, inFlight)
	if limit < d.enough {
		log.Warn("the limit of file descriptors is low; half of them are reserved for the store, callbacks and operators", "limit", limit, "connections", d.Users, "good", d.enough)
	}
	return d
}
