package server

import (
	"errors"
	"fmt"
	"net/http"
	"testing"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/problem"
)

// A request without an idempotency key is not told to come again with the same key.
func TestAdvise(t *testing.T) {
	unknown := fmt.Errorf("delete set: %w", feed.ErrUnknown)
	p := problem.From(advise(unknown, "look first"))
	if p.Status != http.StatusServiceUnavailable || p.Detail != "look first" || p.RetryAfter == 0 || !errors.Is(p, feed.ErrUnknown) || problem.From(unknown).Detail == p.Detail {
		t.Errorf("the problem is %+v", p)
	}
	for _, err := range []error{nil, feed.ErrNoSet, fmt.Errorf("delete set: %w", feed.ErrUnavailable)} {
		if got := advise(err, "look first"); got != err {
			t.Errorf("%v becomes %v", err, got)
		}
	}
}
