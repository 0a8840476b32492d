package disklog

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
)

// kept returns the keys and values of a Bucket with a prefix and after a key.
func kept(t *testing.T, k *Bucket, prefix, after string) (keys []string, values map[string]string) {
	t.Helper()
	values = make(map[string]string)
	ok(t, k.Scan(t.Context(), prefix, after, func(key string, v []byte) bool {
		keys = append(keys, key)
		values[key] = string(v)
		return true
	}))
	return keys, values
}

func apply(t *testing.T, k *Bucket, writes map[string][]byte) {
	t.Helper()
	ok(t, k.Apply(t.Context(), writes, true))
}

func TestBucket(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	l := filled(t, filepath.Join(dir, "data"), Options{})
	k, other := l.Bucket("some"), l.Bucket("some2")
	want := map[string]string{"a": "", "a/1": "1", "a/2": "2", "a\xff": "ff", "a\xff\xff": "ffff", "b": "b"}
	writes := make(map[string][]byte)
	for key, v := range want {
		writes[key] = []byte(v)
	}
	apply(t, k, writes)
	apply(t, other, map[string][]byte{"a/3": []byte("other")})
	check := func(k *Bucket) {
		t.Helper()
		for _, test := range []struct {
			prefix, after string
			want          []string
		}{
			{"", "", []string{"a", "a/1", "a/2", "a\xff", "a\xff\xff", "b"}},
			{"a", "", []string{"a", "a/1", "a/2", "a\xff", "a\xff\xff"}},
			{"a", "a", []string{"a/1", "a/2", "a\xff", "a\xff\xff"}},
			{"a/", "a/1", []string{"a/2"}},
			{"a\xff", "", []string{"a\xff", "a\xff\xff"}},
			{"a/", "b", nil},
			{"c", "", nil},
		} {
			got, values := kept(t, k, test.prefix, test.after)
			if !slices.Equal(got, test.want) {
				t.Errorf("Scan() after %q with prefix %q = %q, want %q", test.after, test.prefix, got, test.want)
			}
			for key, v := range values {
				if v != want[key] {
					t.Errorf("%q is %q, want %q", key, v, want[key])
				}
			}
		}
		for key, v := range want {
			if got, err := k.Get(t.Context(), key); err != nil || got == nil || string(got) != v {
				t.Errorf("%q is %q, %v, want %q", key, got, err, v)
			}
		}
		if got, err := k.Get(t.Context(), "a/3"); err != nil || got != nil {
			t.Errorf("Get() of a key of another bucket = %q, %v, want nil", got, err)
		}
	}
	check(k)

	// A backup has the bucket, and so has the store after it is opened again.
	copied := filepath.Join(dir, "copy")
	ok(t, l.Checkpoint(copied))
	apply(t, k, map[string][]byte{"later": []byte("x")})
	c := start(t, copied, Options{})
	check(c.Bucket("some"))
	stop(t, c)
	stop(t, l)
	l = start(t, filepath.Join(dir, "data"), Options{})
	defer stop(t, l)
	k = l.Bucket("some")
	apply(t, k, map[string][]byte{"later": nil, "none": nil})
	check(k)
	entries(t, l, "set") // the set must be unchanged
}

// TestBucketConcurrentApply checks that overlapping writes are each applied completely or not at
// all, and survive a crash.
func TestBucketConcurrentApply(t *testing.T) {
	t.Parallel()
	fs := vfs.NewCrashableMem()
	l := start(t, "data", Options{FS: fs, Reserve: 1})
	k := l.Bucket("some")
	var running sync.WaitGroup
	for w := range 8 {
		running.Go(func() {
			for i := range 50 {
				v := fmt.Appendf(nil, "%d-%d", w, i)
				if err := k.Apply(t.Context(), map[string][]byte{"x": v, "y": v, fmt.Sprint("old", w, "-", i-1): nil, fmt.Sprint("old", w, "-", i): v}, true); err != nil {
					t.Error(err)
				}
			}
		})
	}
	running.Wait()
	crashed := fs.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 0})
	stop(t, l)
	l = start(t, "data", Options{FS: crashed, Reserve: 1})
	defer stop(t, l)
	keys, values := kept(t, l.Bucket("some"), "", "")
	if len(keys) != 2+8 || values["x"] != values["y"] || values["x"] == "" {
		t.Errorf("after the crash: %q, want ten keys, and equal values of x and y", slices.Sorted(maps.Values(values)))
	}
}

// TestBucketEraseReplaced checks that a copy made after EraseReplaced has no file with replaced
// values.
func TestBucketEraseReplaced(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	o := Options{tune: func(o *pebble.Options) {
		o.ApplyCompressionSettings(func() pebble.DBCompressionSettings { return pebble.DBCompressionNone })
	}}
	open := func() *Log {
		l, err := Open(t.Context(), filepath.Join(dir, "data"), o)
		ok(t, err)
		return l
	}
	l := open()
	apply(t, l.Bucket("a"), map[string][]byte{"key": []byte("in clear"), "removed": []byte("in clear, too")})
	ok(t, errors.Join(l.db.Flush(), l.Close()))
	l = open()
	defer l.Close()
	copied := func(name string) string {
		t.Helper()
		to := filepath.Join(dir, name)
		ok(t, l.Checkpoint(to))
		all := ""
		files, err := os.ReadDir(to)
		for _, f := range files {
			text, readErr := os.ReadFile(filepath.Join(to, f.Name()))
			all, err = all+string(text), errors.Join(err, readErr)
		}
		ok(t, err)
		return all
	}
	apply(t, l.Bucket("a"), map[string][]byte{"key": []byte("sealed"), "removed": nil})
	apply(t, l.Bucket("b"), map[string][]byte{"key": []byte("another map")})
	if !strings.Contains(copied("before"), "in clear") {
		t.Fatal("replaced values are erased before EraseReplaced")
	}
	ok(t, l.Bucket("a").EraseReplaced(t.Context()))
	if all := copied("after"); strings.Contains(all, "in clear") || !strings.Contains(all, "sealed") {
		t.Error("replaced values still exist, or present values do not")
	}
	if _, values := kept(t, l.Bucket("a"), "", ""); len(values) != 1 || values["key"] != "sealed" {
		t.Errorf("values = %q, want only the sealed key", values)
	}
	ok(t, l.Bucket("c").EraseReplaced(t.Context())) // an empty bucket
}
