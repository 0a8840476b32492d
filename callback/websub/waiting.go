package websub

import (
	"context"
	"fmt"
	"net/http"

	"github.com/rshub/rshub/callback/subscription"
	"github.com/rshub/rshub/feed"
)

// What Waiting looks at, at most.
const (
	waitingPerShard = 1000
	waitingMost     = 200 // requests that it returns
)

// Waiting returns requests of subscribers about the topics of a set that are not carried out yet, at all
// hubs, at most 200. by is who made them, as Requester says it; empty: anybody. The
// requests have no secrets.
func (s *Server) Waiting(ctx context.Context, set, by string) (waiting []subscription.Request, err error) {
	shards := make([]int, subscription.Shards)
	for i := range shards {
		shards[i] = i
	}
	newest, err := s.registry.Newest(ctx, shards)
	if err != nil {
		return nil, fmt.Errorf("look at requests that wait: %w", err)
	}
	for shard, n := range newest {
		if n == 0 {
			continue
		}
		after := uint64(0)
		for range waitingPerShard / askedPage {
			requests, err := s.registry.Inbox(ctx, shard, after, askedPage)
			if err != nil {
				return nil, fmt.Errorf("read requests that wait: %w", err)
			}
			for _, r := range requests {
				after = r.Number
				if feed.SetOf(r.Set) != set || r.Mode != subscription.Subscribe && r.Mode != subscription.Unsubscribe || by != "" && r.By != by {
					continue
				}
				r.Secret, r.Token = "", ""
				if waiting = append(waiting, r); len(waiting) == waitingMost {
					return waiting, nil
				}
			}
			if len(requests) < askedPage {
				break
			}
		}
	}
	return waiting, nil
}

// Requester says who makes a request, as a subscription.Request keeps it.
func Requester(r *http.Request) string { return requester(r) }
