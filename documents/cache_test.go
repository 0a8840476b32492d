package documents

import (
	"errors"
	"sync"
	"testing"
	"testing/synctest"
)

func TestCacheIsBounded(t *testing.T) {
	c := newCache[string](10)
	for _, key := range []string{"a", "b", "c"} {
		c.add(key, key, 3)
	}
	if _, ok := c.get("a"); !ok { // now a was used later than b
		t.Fatal("a is not kept")
	}
	c.add("d", "d", 3)
	c.add("large", "large", 11)
	c.add("d", "again", 4)
	for key, want := range map[string]bool{"a": true, "b": false, "c": true, "d": true, "large": false} {
		if _, ok := c.get(key); ok != want {
			t.Errorf("%s kept: %v, want %v", key, ok, want)
		}
	}
	if c.size != 10 || c.order.Len() != 3 || len(c.items) != 3 {
		t.Errorf("size %d, %d and %d items", c.size, c.order.Len(), len(c.items))
	}
}

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
