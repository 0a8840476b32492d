package lru

import "testing"

func TestCacheIsBounded(t *testing.T) {
	c := New[string, string](10)
	for _, key := range []string{"a", "b", "c"} {
		c.Add(key, key, 3)
	}
	if _, ok := c.Get("a"); !ok { // now a was used later than b
		t.Fatal("Get(a) = false, want true")
	}
	c.Add("d", "d", 3)
	c.Add("large", "large", 11)
	c.Add("d", "again", 4)
	for key, want := range map[string]bool{"a": true, "b": false, "c": true, "d": true, "large": false} {
		if _, ok := c.Get(key); ok != want {
			t.Errorf("Get(%s): ok = %v, want %v", key, ok, want)
		}
	}
	if c.size != 10 || c.order.Len() != 3 || len(c.items) != 3 {
		t.Errorf("got size %d, with %d and %d items", c.size, c.order.Len(), len(c.items))
	}
	c.Remove("c")
	c.Remove("none")
	if _, ok := c.Get("c"); ok || c.size != 7 || c.order.Len() != 2 || len(c.items) != 2 {
		t.Errorf("after Remove: got size %d, with %d and %d items", c.size, c.order.Len(), len(c.items))
	}
	c.Clear()
	if _, ok := c.Get("a"); ok || c.size != 0 {
		t.Errorf("after Clear: got size %d", c.size)
	}
	c.Add("a", "a", 3)
	if _, ok := c.Get("a"); !ok {
		t.Error("Get after Clear and Add = false, want true")
	}
}
