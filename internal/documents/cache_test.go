package documents

import (
	"errors"
	"testing"
)

func TestCacheDoesNotStoreErrors(t *testing.T) {
	c := newCache[int](100)
	failed := errors.New("failed")
	if _, err := c.do(t.Context(), "key", func() (int, int64, error) { return 0, 0, failed }); err != failed {
		t.Errorf("do = %v, want %v", err, failed)
	}
	if v, err := c.do(t.Context(), "key", func() (int, int64, error) { return 7, 1, nil }); v != 7 || err != nil {
		t.Errorf("do = %d, %v, want 7, nil", v, err)
	}
}
