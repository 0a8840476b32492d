package documents

import (
	"errors"
	"sync"
	"testing"
	"testing/synctest"
)

func TestCacheMakesOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCache[int](100)
		made, proceed := 0, make(chan struct{})
		get := func() {
			v, err := c.do(t.Context(), "key", func() (int, int64, error) {
				made++
				<-proceed
				return 7, 1, nil
			})
			if v != 7 || err != nil {
				t.Errorf("do = %d, %v", v, err)
			}
		}
		var all sync.WaitGroup
		for range 50 {
			all.Go(get)
		}
		synctest.Wait()
		close(proceed)
		all.Wait()
		get() // it is kept
		if made != 1 {
			t.Errorf("made %d times", made)
		}
	})
}

func TestCacheForgetsErrors(t *testing.T) {
	c := newCache[int](100)
	failed := errors.New("failed")
	if _, err := c.do(t.Context(), "key", func() (int, int64, error) { return 0, 0, failed }); err != failed {
		t.Errorf("err = %v", err)
	}
	if v, err := c.do(t.Context(), "key", func() (int, int64, error) { return 7, 1, nil }); v != 7 || err != nil {
		t.Errorf("do = %d, %v", v, err)
	}
}
