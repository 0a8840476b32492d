package websub

import (
	"context"
	"fmt"
	"iter"

	"github.com/rshub/rshub/callback/subscription"
)

// What Waiting looks at, at most.
const (
	waitingPerShard = 1000
	waitingMost     = 200 // requests that it returns
)

// Waiting returns requests of subscribers about a set that are not carried out yet, at all
// hubs, at most 200. by is who made them, as Requester says it; empty: anybody. The
// requests have no secrets.
func (s *Server) Waiting(ctx context.Context, set, by string) (waiting []subscription.Request, err error) {
	shards := make([]int, subscription.Shards)
	for i := range shards {
		shards[i] = i
	}
	newest, err := s.registry.Newest(ctx, shards)
	if err != nil {
		return nil, fmt.Errorf("list pending requests: %w", err)
	}
	for shard, n := range newest {
		if n == 0 {
			continue
		}
		looked := 0
		for r, err := range s.inbox(ctx, shard) {
			if err != nil {
				return nil, fmt.Errorf("read pending requests: %w", err)
			}
			if looked++; looked > waitingPerShard {
				break
			}
			if r.Set != set || r.Mode != subscription.Subscribe && r.Mode != subscription.Unsubscribe || by != "" && r.By != by {
				continue
			}
			r.Secret, r.Token, r.VerifyToken = "", "", ""
			if waiting = append(waiting, r); len(waiting) == waitingMost {
				return waiting, nil
			}
		}
	}
	return waiting, nil
}

// inboxPage is how many requests of an inbox are read at a time.
const inboxPage = 100

// inbox yields the requests in the inbox of a shard, oldest first. An error ends the
// sequence.
func (s *Server) inbox(ctx context.Context, shard int) iter.Seq2[subscription.Request, error] {
	return func(yield func(subscription.Request, error) bool) {
		for after := uint64(0); ; {
			requests, err := s.registry.Inbox(ctx, shard, after, inboxPage)
			if err != nil {
				yield(subscription.Request{}, err)
				return
			}
			for _, r := range requests {
				if after = r.Number; !yield(r, nil) {
					return
				}
			}
			if len(requests) < inboxPage {
				return
			}
		}
	}
}
