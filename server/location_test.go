package server

import (
	"os"
	"path/filepath"
	"testing"
)

func TestLocation(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	if err := os.Mkdir("a", 0o700); err != nil {
		t.Fatal(err)
	}
	redis := func(name, prefix string) Location { return Location{name, prefix} }
	disk := func(name string) Location { return Location{name, "rshub"} }
	for _, test := range []struct {
		a, b Location
		same bool
	}{
		{disk("a"), disk("./a/"), true},
		{disk("a"), disk(filepath.Join(dir, "a")), true},
		{disk("a"), disk("."), false},
		{disk("none"), disk("none"), false}, // there is nothing there that could be the same
		{disk("a"), redis("redis://a", "rshub"), false},
		{redis("redis://user:secret@a:1/2?x=y", "p"), redis("redis://a:1/2", "p"), true},
		{redis("redis://a", "p"), redis("redis://a", "q"), false},
	} {
		if got := test.a.Same(test.b); got != test.same || test.b.Same(test.a) != got {
			t.Errorf("%v and %v are the same: %t", test.a, test.b, got)
		}
	}
	if s := redis("rediss://user:secret@a:1/2?x=secret", "p").String(); s != "rediss://a:1/2 (prefix p)" {
		t.Errorf("String() = %s", s)
	}
	c := Config{Data: "b", RedisURL: "redis://b", Prefix: "rshub", RedisWait: 3}
	if c := disk("a").Of(c); c.Data != "a" || c.RedisURL != "" || c.RedisWait != 3 {
		t.Errorf("on the disk it is %+v", c)
	}
	if c := redis("redis://a", "p").Of(c); c.Data != "" || c.RedisURL != "redis://a" || c.Prefix != "p" || c.RedisWait != 3 {
		t.Errorf("in Redis it is %+v", c)
	}
}
