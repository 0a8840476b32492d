package websub

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"net/http"

	"github.com/rshub/rshub/callback/subscription"
	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/access"
	"github.com/rshub/rshub/internal/forwarded"
	"github.com/rshub/rshub/internal/problem"
)

// Requester identifies the caller of a request, in the form of subscription.Request.By: by the name of its token, or
// by its network address. It returns "" if neither is known, and for a ticket, whose holder must not see the requests
// of the caller that made it.
func Requester(r *http.Request) string {
	caller := access.FromContext(r.Context())
	if caller.Ticket {
		return ""
	}
	if caller.Name != "" {
		return subscription.ByToken(caller.Name)
	}
	if client := forwarded.Client(r); client.IsValid() {
		return subscription.ByAddress(client)
	}
	return ""
}

// requirePending returns nil if a request about a subscription is pending, or the subscription exists. It reads the
// inbox first: if a request leaves it in the meantime, its result is in the record that Find reads.
func (s *Server) requirePending(ctx context.Context, id subscription.ID) error {
	for r, err := range s.inbox(ctx, id.Shard()) {
		if err != nil || r.ID() == id {
			return err
		}
	}
	record, err := s.registry.Find(ctx, id)
	if err == nil && !record.Ended.IsZero() {
		err = subscription.ErrNoSubscription
	}
	return err
}

// send makes a request durable, so that the engine executes it.
func (s *Server) send(ctx context.Context, r subscription.Request) error {
	err := s.engine.Send(ctx, r)
	if err == nil {
		return nil
	}
	err = fmt.Errorf("store request to %s: %w", r.Mode, err)
	if errors.Is(err, feed.ErrUnknown) {
		p := problem.Retry(problem.New(http.StatusServiceUnavailable, "unknown",
			"it is unknown whether the request was stored; send it again, a repeat is harmless"))
		p.Err = err
		return p
	}
	return err
}

const (
	maxWaiting      = 200  // requests that Waiting returns
	maxWaitingShard = 1000 // requests that Waiting reads in a shard
	inboxPage       = 100  // requests of an inbox that are read at a time
)

// Waiting returns the pending requests of subscribers to a set, at all hubs, at most 200. by is the requester, as
// returned by Requester; empty means all. The requests have no secrets.
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
		read := 0
		for r, err := range s.inbox(ctx, shard) {
			if err != nil {
				return nil, fmt.Errorf("read pending requests: %w", err)
			}
			if read++; read > maxWaitingShard {
				break
			}
			if r.Set != set || r.Mode != subscription.Subscribe && r.Mode != subscription.Unsubscribe || by != "" && r.By != by {
				continue
			}
			r.Secret, r.Token, r.VerifyToken = "", "", ""
			if waiting = append(waiting, r); len(waiting) == maxWaiting {
				return waiting, nil
			}
		}
	}
	return waiting, nil
}

// inbox yields the requests in the inbox of a shard, oldest first. An error ends the sequence.
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
