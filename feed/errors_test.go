package feed

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
)

func TestNewClockError(t *testing.T) {
	now := time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC)
	err := fmt.Errorf("append: %w", NewClockError(Cursor{Position: 7, Micros: now.Add(48 * time.Hour).UnixMicro()}, now))
	if !errors.Is(err, ErrClock) || errors.Is(err, ErrUnknown) || errors.Is(ErrClock, ErrGone) {
		t.Errorf("errors.Is: %v is not only ErrClock", err)
	}
	e, ok := errors.AsType[*Error](err)
	if !ok || e.Status != ErrClock.Status || e.Code != ErrClock.Code || !strings.Contains(e.Detail, "2026-03-06T05:06:07Z") || !strings.Contains(e.Detail, "nothing was written") {
		t.Errorf("NewClockError() = %+v, want ErrClock with the datetime of the newest entry", e)
	}
	if ErrClock.Detail == e.Detail || ErrorFromCode("clock") != ErrClock {
		t.Error("NewClockError() modifies ErrClock")
	}
}
