package server

import (
	"errors"
	"math"

	"github.com/rshub/rshub/callback"
)

// Shares say how the file descriptors that the process may have are shared out. Users
// must not use up all of them: without one, the store cannot write, probes find a dead
// hub, and operators find none.
type shares struct {
	limit int64 // how many there are
	users int64 // connections at Config.Listen; the rest is kept back
	one   int64 // of these, connections of one address; 0: any number
	away  int64 // connections at Config.Listen that are told that there are too many
	idle  int   // connections to callbacks that are kept while nothing is sent; 0: the default
	good  int64 // a limit that would be enough
}

// What is kept back, besides connections to callbacks.
const (
	storeDescriptors = 640 // the store on the disk keeps 500 tables open, and writes to others; Redis and NATS need fewer
	opsDescriptors   = 128 // connections of probes and operators, files of tokens and certificates, lookups of names
	mostOps          = 64  // connections at Config.OpsListen, of these
	mostAway         = 64
	mostIdle         = 16_000
)

// share shares out limit descriptors. inFlight is how many requests to callbacks may be
// under way. At most half of the limit is kept back.
func share(limit, inFlight int64) shares {
	needed := storeDescriptors + opsDescriptors + mostAway + inFlight
	idle := min(mostIdle, max(limit/8, 1))
	users := limit - min(needed+idle, limit/2)
	return shares{
		limit: limit, users: users, one: users / 2, away: min(mostAway, limit/16), idle: int(idle), good: (needed*8 + 2) / 3,
	}
}

// fits reports whether everything that should be kept back is.
func (s *shares) fits() bool { return s.limit >= s.good }

// shareDescriptors shares out the descriptors that the process may have.
func (s *Server) shareDescriptors() shares {
	limit, err := descriptorLimit()
	if errors.Is(err, errors.ErrUnsupported) {
		return shares{users: math.MaxInt64}
	}
	if err != nil {
		s.log.Warn("the limit of file descriptors is unknown, so connections are not bounded by it", "err", err)
		return shares{users: math.MaxInt64}
	}
	all := share(limit, callback.InFlight)
	if !all.fits() {
		s.log.Warn("the limit of file descriptors is low: half of them are kept for the store, callbacks and operators", "limit", limit, "connections", all.users, "good", all.good)
	}
	return all
}
