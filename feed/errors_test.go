package feed

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
)

func TestAhead(t *testing.T) {
	now := time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC)
	err := fmt.Errorf("append: %w", Ahead(Cursor{Position: 7, Micros: now.Add(48 * time.Hour).UnixMicro()}, now))
	if !errors.Is(err, ErrClock) || errors.Is(err, ErrUnknown) || errors.Is(ErrClock, ErrGone) {
		t.Errorf("%v is not what it should be", err)
	}
	e, ok := errors.AsType[*Error](err)
	if !ok || e.Status != ErrClock.Status || e.Code != ErrClock.Code || !strings.Contains(e.Detail, "2026-03-06T05:06:07Z") || !strings.Contains(e.Detail, "nothing was written") {
		t.Errorf("the client sees %+v", e)
	}
	if ErrClock.Detail == e.Detail || FromCode("clock") != ErrClock {
		t.Error("ErrClock has changed")
	}
}
