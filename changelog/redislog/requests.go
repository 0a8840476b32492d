package redislog

import (
	"context"
	"fmt"

	"github.com/rshub/rshub/internal/redisconn"
)

// ExchangeRequests is how hubs ask the hub that writes the inventory of a set for a newer root. It
// removes the requests for the sets in done, adds others, and returns all that remain. The value of a
// set is true if a reader has found damage.
func (l *Log) ExchangeRequests(ctx context.Context, done []string, add map[string]bool) (map[string]bool, error) {
	args := []any{len(done)}
	for _, set := range done {
		args = append(args, set)
	}
	for set, damaged := range add {
		args = append(args, set, damaged)
	}
	var requests map[string]bool
	err := l.write(ctx, func(t *redisconn.Try) error {
		a, err := l.run(t, l.scripts.requests, []string{l.requestsKey()}, args...)
		if err != nil {
			return err
		}
		requests = make(map[string]bool)
		for i := 1; i+1 < len(a); i += 2 {
			requests[a.Text(i)] = a.Text(i+1) == "1"
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("exchange requests for inventories: %w", err)
	}
	return requests, nil
}
