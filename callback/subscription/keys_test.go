package subscription

import (
	"bytes"
	"encoding/base64"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/rshub/rshub/changelog"
	"github.com/rshub/rshub/changelog/disklog"
	"github.com/rshub/rshub/internal/claim"
	"github.com/rshub/rshub/internal/redisconn"
	"github.com/rshub/rshub/internal/testutil/conntest"
	"github.com/rshub/rshub/internal/testutil/redistest"
)

// keyOf returns the text of a key with an ID.
func keyOf(id string) string {
	return id + ":" + base64.StdEncoding.EncodeToString(bytes.Repeat([]byte(id[:1]), keySize))
}

// keysOf returns keys with the IDs, the first of which encrypts.
func keysOf(t testing.TB, ids ...string) *Keys {
	t.Helper()
	text := ""
	for _, id := range ids {
		text += keyOf(id) + "\n"
	}
	k, err := ParseKeys(text)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func TestParseKeys(t *testing.T) {
	long := base64.StdEncoding.EncodeToString(make([]byte, keySize))
	for text, want := range map[string]string{
		"a:" + long:                          "",
		" a:" + long + ",\n2026-11:" + long:  "",
		"":                                   "no key",
		" ,\n":                               "no key",
		long:                                 "key 1: want ID:KEY",
		":" + long:                           "key 1: want ID:KEY",
		"a b:" + long:                        "key 1: want ID:KEY",
		strings.Repeat("a", 41) + ":" + long: "key 1: want ID:KEY",
		"a:" + long + ",ä:" + long:           "key 2: want ID:KEY",
		"a:" + long[:20]:                     "key a: want 32 bytes",
		"a:" + long + "A":                    "key a: want 32 bytes",
		"a:" + long + ",a:" + long:           "key a: duplicate ID",
	} {
		k, err := ParseKeys(text)
		switch {
		case want == "" && (err != nil || !k.encrypts() || k.all["a"] == nil || k.all["b"] != nil):
			t.Errorf("%q is refused: %v", text, err)
		case want != "" && (err == nil || !strings.Contains(err.Error(), want)):
			t.Errorf("%q: %v, want %q", text, err, want)
		case err != nil && (strings.Contains(err.Error(), long) || len(long) > 20 && strings.Contains(err.Error(), long[:20])):
			t.Errorf("an error shows a key: %v", err)
		}
	}
}

// What is encrypted is read with the same key, is to be encrypted anew when another key is
// the first, and waits, unchanged, while the key is missing.
func TestSealed(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 3, 4, 5, 6, 0, 0, time.UTC)
	s := Subscription{Set: "demo", Callback: "https://callback.example/", Terms: Terms{Secret: "very-secret"}, Former: "before-that", FormerEnd: now, LeaseEnd: now, Token: "t", Made: now}
	encode := func(s Subscription, k *Keys) []byte {
		t.Helper()
		b, err := encodeSubscription(&s, k)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	decode := func(b []byte, k *Keys) Subscription {
		t.Helper()
		s, err := decodeSubscription(b, k)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	stale := s
	stale.Stale = true
	one := encode(s, keysOf(t, "one", "two"))
	if bytes.Contains(one, []byte(s.Secret)) || bytes.Contains(one, []byte(s.Former)) {
		t.Errorf("kept is %s", one)
	}
	if bytes.Equal(one, encode(s, keysOf(t, "one"))) {
		t.Error("the nonce is the same twice")
	}
	for name, test := range map[string]struct {
		kept []byte
		keys *Keys
		want Subscription
	}{
		"the same key":         {one, keysOf(t, "one"), s},
		"another first":        {one, keysOf(t, "two", "one"), stale},
		"clear, with keys":     {encode(s, nil), keysOf(t, "one"), stale},
		"clear, without keys":  {encode(s, nil), nil, s},
		"encrypted twice over": {encode(decode(one, keysOf(t, "two")), keysOf(t, "two")), keysOf(t, "one"), s},
	} {
		if got := decode(test.kept, test.keys); !reflect.DeepEqual(got, test.want) {
			t.Errorf("%s: is %+v, want %+v", name, got, test.want)
		}
	}
	if got := decode(encode(Subscription{Set: "demo", Token: "t"}, keysOf(t, "one")), keysOf(t, "one")); got.Sealed != "" || got.Stale {
		t.Errorf("without a secret it is %+v", got)
	}

	for _, keys := range []*Keys{nil, keysOf(t, "two")} {
		locked := decode(one, keys)
		if locked.Sealed != "one" || locked.Stale {
			t.Errorf("without its key it is %+v", locked)
		}
		if secret, former := locked.Secrets(now.Add(-time.Hour)); secret != "" || former != "" {
			t.Errorf("it signs with %q and %q", secret, former)
		}
		// Who has seen the store, but not the secret, has nothing to show.
		if r := (&Request{Mode: Subscribe, Terms: Terms{Secret: locked.Secret}}); r.Shows(&locked) || !errors.Is(r.May(&locked), ErrNotYours) {
			t.Error("what is encrypted passes for the secret")
		}
	}

	// What is encrypted belongs to its subscription, its place, and its key.
	moved, swapped, other := decode(one, nil), decode(one, nil), decode(one, nil)
	moved.Callback = "https://other.example/"
	swapped.Secret, swapped.Former = swapped.Former, swapped.Secret
	other.Secret = base64.StdEncoding.EncodeToString([]byte("short"))
	for what, bad := range map[string]Subscription{"moved": moved, "swapped": swapped, "damaged": other} {
		if got, err := decodeSubscription(encode(bad, nil), keysOf(t, "one")); !errors.Is(err, changelog.ErrCorrupt) {
			t.Errorf("%s: is %+v, %v", what, got, err)
		}
	}
	same, err := ParseKeys("one:" + base64.StdEncoding.EncodeToString(make([]byte, keySize)))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := decodeSubscription(one, same); !errors.Is(err, changelog.ErrCorrupt) || !strings.Contains(err.Error(), "key one") {
		t.Errorf("with another key of the same ID: %v", err)
	}

	for name, r := range map[string]Request{
		"a secret":       {Mode: Subscribe, Terms: Terms{Secret: "very-secret"}},
		"a verify token": {Mode: Unsubscribe, VerifyToken: "verify-me"},
		"both":           {Mode: Subscribe, Terms: Terms{Secret: "very-secret"}, VerifyToken: "verify-me"},
	} {
		t.Run(name, func(t *testing.T) {
			r.Set, r.Callback, r.At, r.Until = "demo", "https://callback.example/", now, now
			b, err := encodeRequest(&r, keysOf(t, "one"))
			if err != nil || bytes.Contains(b, []byte("very-secret")) || bytes.Contains(b, []byte("verify-me")) {
				t.Errorf("kept is %s, %v", b, err)
			}
			if got := decodeRequest(0, b, keysOf(t, "two", "one")); !reflect.DeepEqual(got, r) {
				t.Errorf("is %+v, want %+v", got, r)
			}
			waiting := decodeRequest(0, b, nil)
			if waiting.Sealed != "one" || waiting.Mode != r.Mode {
				t.Errorf("without its key it is %+v", waiting)
			}
			if again, err := encodeRequest(&waiting, keysOf(t, "two")); err != nil || !reflect.DeepEqual(decodeRequest(0, again, keysOf(t, "one")), r) {
				t.Errorf("copied it is %s, %v", again, err)
			}
		})
	}
}

// The files on the disk, and the keys in Redis, do not have the secrets in clear. Copies of
// them neither, and a copy can be made without the keys.
func TestSecretsAtRest(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("a long test")
	}
	ctx := t.Context()
	const secret, former = "a-very-secret-text", "its-former-secret-text"
	now := time.Now().UTC().Truncate(time.Microsecond)
	record := Record{Subscription: Subscription{
		Set: "demo", Callback: "https://callback.example/", Terms: Terms{Secret: secret}, Former: former, FormerEnd: now.Add(time.Hour), LeaseEnd: now.Add(time.Hour), Token: "t", Made: now,
	}}
	request := Request{Mode: Subscribe, Set: "demo", Callback: "https://new.example/", Terms: Terms{Secret: secret}, At: now}
	keys := keysOf(t, "one")

	dir := t.TempDir()
	log, err := disklog.Open(t.Context(), filepath.Join(dir, "changes"), disklog.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	keep := log.Bucket("callback")
	claims, err := claim.OpenLocal(ctx, keep, Shards)
	if err != nil {
		t.Fatal(err)
	}
	open := func(keys *Keys) *Disk {
		t.Helper()
		d, err := OpenDisk(ctx, keep, claims, keys)
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	disk := open(keys)
	fill := func(r Registry, c claim.Claim) {
		t.Helper()
		if err := errors.Join(r.Commit(ctx, c, Changes{Put: []Record{record}}), r.Send(ctx, request)); err != nil {
			t.Fatal(err)
		}
	}
	local, err := claims.Acquire(ctx, []int{record.ID().Shard()})
	if err != nil {
		t.Fatal(err)
	}
	fill(disk, local[0])
	if err := log.Checkpoint(filepath.Join(dir, "backup")); err != nil {
		t.Fatal(err)
	}
	clear := func(what, text string) {
		t.Helper()
		if strings.Contains(text, secret) || strings.Contains(text, former) {
			t.Errorf("%s has a secret", what)
		}
	}
	read := 0
	err = filepath.WalkDir(dir, func(path string, e os.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		text, err := os.ReadFile(path)
		read += bytes.Count(text, []byte("callback.example"))
		clear(path, string(text))
		return err
	})
	if err != nil || read < 2 {
		t.Fatalf("the subscription is there %d times, %v", read, err)
	}

	s := redistest.Start(t)
	conn := conntest.Open(t, s.Addr, redisconn.Options{})
	redis := func(keys *Keys) onRedis {
		return hubWith(t, conn, "p", RedisOptions{Keys: keys}, claim.RedisOptions{ClaimFor: 500 * time.Millisecond})
	}
	to := redis(nil) // what is encrypted stays so, also where nobody has the key
	if n, err := Copy(ctx, open(nil), to, to); err != nil || n != 1 {
		t.Fatalf("%d are copied, %v", n, err)
	}
	client := s.Client()
	names, err := client.Keys(ctx, "*").Result()
	if err != nil || len(names) == 0 {
		t.Fatal(names, err)
	}
	read = 0
	for _, name := range names {
		dump, err := client.Dump(ctx, name).Result()
		if err != nil {
			t.Fatal(err)
		}
		clear(name, dump)
		if kind := client.Type(ctx, name).Val(); kind == "hash" {
			for _, v := range client.HGetAll(ctx, name).Val() {
				clear(name, v)
				read += strings.Count(v, "callback.example")
			}
		} else if kind == "stream" {
			for _, m := range client.XRange(ctx, name, "-", "+").Val() {
				for _, v := range m.Values {
					clear(name, v.(string))
					read += strings.Count(v.(string), "new.example")
				}
			}
		}
	}
	if read != 2 {
		t.Errorf("Redis has the subscription and the request %d times", read)
	}
	got, err := redis(keys).Find(ctx, record.ID())
	if err != nil || got.Secret != secret || got.Former != former {
		t.Errorf("read from Redis is %+v, %v", got, err)
	}
}
