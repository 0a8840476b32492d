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

// newKeys returns keys with IDs. The first encrypts.
func newKeys(t testing.TB, ids ...string) *Keys {
	t.Helper()
	text := ""
	for _, id := range ids {
		text += id + ":" + base64.StdEncoding.EncodeToString(bytes.Repeat([]byte(id[:1]), keySize)) + "\n"
	}
	k, err := ParseKeys(text)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func TestParseKeys(t *testing.T) {
	key := base64.StdEncoding.EncodeToString(make([]byte, keySize))
	for text, want := range map[string]string{
		"a:" + key:                          "",
		" a:" + key + ",\n2026-11:" + key:   "",
		"":                                  "no key",
		" ,\n":                              "no key",
		key:                                 "key 1: want ID:KEY",
		":" + key:                           "key 1: want ID:KEY",
		"a b:" + key:                        "key 1: want ID:KEY",
		strings.Repeat("a", 41) + ":" + key: "key 1: want ID:KEY",
		"a:" + key + ",ä:" + key:            "key 2: want ID:KEY",
		"a:" + key[:20]:                     "key a: want 32 bytes",
		"a:" + key + "A":                    "key a: want 32 bytes",
		"a:" + key + ",a:" + key:            "key a: duplicate ID",
	} {
		k, err := ParseKeys(text)
		switch {
		case want == "" && (err != nil || k.first != "a" || k.all["a"] == nil):
			t.Errorf("ParseKeys(%q) = %v, want a first key a", text, err)
		case want != "" && (err == nil || !strings.Contains(err.Error(), want)):
			t.Errorf("ParseKeys(%q) = %v, want %q", text, err, want)
		case err != nil && strings.Contains(err.Error(), key[:20]):
			t.Errorf("ParseKeys(%q) = %v, which contains the key", text, err)
		}
	}
}

func mustEncode(t *testing.T, s Subscription, k *Keys) []byte {
	t.Helper()
	b, err := encodeSubscription(&s, k)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func mustDecode(t *testing.T, b []byte, k *Keys) Subscription {
	t.Helper()
	s, err := decodeSubscription(b, k)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

var sealTime = time.Date(2026, 3, 4, 5, 6, 0, 0, time.UTC)

// sealExample is a subscription with secrets.
var sealExample = Subscription{
	Set: "demo", Callback: "https://callback.example/", Terms: Terms{Secret: "very-secret"}, Former: "before-that", FormerEnd: sealTime,
	LeaseEnd: sealTime, Token: "t", Made: sealTime,
}

// Secrets are decrypted with their key, are stale if another key is the first, and are left as they are
// while the key is missing.
func TestSealed(t *testing.T) {
	s, stale := sealExample, sealExample
	stale.Stale = true
	one := mustEncode(t, s, newKeys(t, "one", "two"))
	if bytes.Contains(one, []byte(s.Secret)) || bytes.Contains(one, []byte(s.Former)) {
		t.Errorf("encodeSubscription() = %s, which contains a secret", one)
	}
	if bytes.Equal(one, mustEncode(t, s, newKeys(t, "one"))) {
		t.Error("encodeSubscription() repeated a nonce")
	}
	for _, tt := range []struct {
		name   string
		stored []byte
		keys   *Keys
		want   Subscription
	}{
		{"the same key", one, newKeys(t, "one"), s},
		{"another first key", one, newKeys(t, "two", "one"), stale},
		{"clear text, with keys", mustEncode(t, s, nil), newKeys(t, "one"), stale},
		{"clear text, without keys", mustEncode(t, s, nil), nil, s},
		{"encoded again without the key", mustEncode(t, mustDecode(t, one, newKeys(t, "two")), newKeys(t, "two")), newKeys(t, "one"), s},
		{"no secret", mustEncode(t, Subscription{Set: "demo", Token: "t"}, newKeys(t, "one")), newKeys(t, "two"), Subscription{Set: "demo", Token: "t"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := mustDecode(t, tt.stored, tt.keys); !reflect.DeepEqual(got, tt.want) {
				t.Errorf("decodeSubscription() = %+v, want %+v", got, tt.want)
			}
		})
	}
	for _, keys := range []*Keys{nil, newKeys(t, "two")} {
		locked := mustDecode(t, one, keys)
		if locked.Sealed != "one" || locked.Stale {
			t.Errorf("decodeSubscription() without the key = %+v, want Sealed one", locked)
		}
		if secret, former := locked.Secrets(sealTime.Add(-time.Hour)); secret != "" || former != "" {
			t.Errorf("Secrets() without the key = %q, %q, want none", secret, former)
		}
		if r := (&Request{Mode: Subscribe, Terms: Terms{Secret: locked.Secret}}); r.Shows(&locked) || !errors.Is(r.May(&locked), ErrNotYours) {
			t.Error("the encrypted text counts as the secret")
		}
	}
}

// An encrypted secret is bound to its subscription, its use and its key.
func TestSealedElsewhere(t *testing.T) {
	one := mustEncode(t, sealExample, newKeys(t, "one"))
	moved, swapped, damaged := mustDecode(t, one, nil), mustDecode(t, one, nil), mustDecode(t, one, nil)
	moved.Callback = "https://other.example/"
	swapped.Secret, swapped.Former = swapped.Former, swapped.Secret
	damaged.Secret = base64.StdEncoding.EncodeToString([]byte("short"))
	sameID, err := ParseKeys("one:" + base64.StdEncoding.EncodeToString(make([]byte, keySize)))
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name   string
		stored []byte
		keys   *Keys
	}{
		{"moved", mustEncode(t, moved, nil), newKeys(t, "one")},
		{"swapped", mustEncode(t, swapped, nil), newKeys(t, "one")},
		{"damaged", mustEncode(t, damaged, nil), newKeys(t, "one")},
		{"another key of the same ID", one, sameID},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got, err := decodeSubscription(tt.stored, tt.keys); !errors.Is(err, changelog.ErrCorrupt) || !strings.Contains(err.Error(), "key one") {
				t.Errorf("decodeSubscription() = %+v, %v, want ErrCorrupt", got, err)
			}
		})
	}
}

func TestSealedRequest(t *testing.T) {
	for name, r := range map[string]Request{
		"secret":       {Mode: Subscribe, Terms: Terms{Secret: "very-secret"}},
		"verify token": {Mode: Unsubscribe, VerifyToken: "verify-me"},
		"both":         {Mode: Subscribe, Terms: Terms{Secret: "very-secret"}, VerifyToken: "verify-me"},
	} {
		t.Run(name, func(t *testing.T) {
			r.Set, r.Callback, r.At, r.Until = "demo", "https://callback.example/", sealTime, sealTime
			b, err := encodeRequest(&r, newKeys(t, "one"))
			if err != nil || bytes.Contains(b, []byte("very-secret")) || bytes.Contains(b, []byte("verify-me")) {
				t.Errorf("encodeRequest() = %s, %v, want no secret", b, err)
			}
			if got := decodeRequest(0, b, newKeys(t, "two", "one")); !reflect.DeepEqual(got, r) {
				t.Errorf("decodeRequest() = %+v, want %+v", got, r)
			}
			locked := decodeRequest(0, b, nil)
			if locked.Sealed != "one" || locked.Mode != r.Mode {
				t.Errorf("decodeRequest() without the key = %+v, want Sealed one", locked)
			}
			if again, err := encodeRequest(&locked, newKeys(t, "two")); err != nil || !reflect.DeepEqual(decodeRequest(0, again, newKeys(t, "one")), r) {
				t.Errorf("encodeRequest() without the key = %s, %v, want the same secrets", again, err)
			}
		})
	}
}

// Neither the files on disk nor Redis contain secrets in clear text, nor do copies, which can be made
// without the keys.
func TestSecretsAtRest(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("a long test")
	}
	ctx, keys := t.Context(), newKeys(t, "one")
	now := time.Now().UTC().Truncate(time.Microsecond)
	record := Record{Subscription: sealExample}
	record.FormerEnd, record.LeaseEnd = now.Add(time.Hour), now.Add(time.Hour)
	checkClear := func(name, text string) {
		t.Helper()
		if strings.Contains(text, record.Secret) || strings.Contains(text, record.Former) {
			t.Errorf("%s contains a secret", name)
		}
	}

	dir := t.TempDir()
	log, err := disklog.Open(ctx, filepath.Join(dir, "changes"), disklog.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	data := log.Bucket("callback")
	claims, err := claim.OpenLocal(ctx, data, Shards)
	if err != nil {
		t.Fatal(err)
	}
	open := func(keys *Keys) *Disk {
		t.Helper()
		d, err := OpenDisk(ctx, data, claims, keys)
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	disk := open(keys)
	mustCommit(t, disk, acquire(t, claims, record.ID().Shard()), Changes{Put: []Record{record}})
	if err := disk.Send(ctx, Request{Mode: Subscribe, Set: "demo", Callback: "https://new.example/", Terms: record.Terms, At: now}); err != nil {
		t.Fatal(err)
	}
	if err := log.Checkpoint(filepath.Join(dir, "backup")); err != nil {
		t.Fatal(err)
	}
	found := 0
	err = filepath.WalkDir(dir, func(path string, e os.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		text, err := os.ReadFile(path)
		found += bytes.Count(text, []byte("callback.example"))
		checkClear(path, string(text))
		return err
	})
	if err != nil || found < 2 {
		t.Fatalf("subscriptions in files: got %d, %v, want one in the log and one in the backup", found, err)
	}

	s := redistest.Start(t)
	hub := func(keys *Keys) redisHub {
		r := newRedisHub(t, conntest.Open(t, s.Addr, redisconn.Options{}), "p", claim.RedisOptions{})
		r.Redis.opts.Keys = keys
		return r
	}
	to := hub(nil)
	if n, err := Copy(ctx, open(nil), to, to); err != nil || n != 1 {
		t.Fatalf("Copy() = %d, %v, want 1", n, err)
	}
	client, id, shard, other := s.Client(), record.ID(), record.ID().Shard(), NewID("demo", "", "https://new.example/").Shard()
	stored := client.HGet(ctx, to.recordsKey(shard), string(id[:])).Val()
	messages := client.XRange(ctx, to.inboxKey(other), "-", "+").Val()
	if !strings.Contains(stored, "callback.example") || len(messages) != 1 {
		t.Fatalf("in Redis: got %q and %v, want a subscription and a request", stored, messages)
	}
	checkClear("the subscription in Redis", stored)
	checkClear("the request in Redis", messages[0].Values["r"].(string))
	if got, err := hub(keys).Find(ctx, record.ID()); err != nil || got.Secret != record.Secret || got.Former != record.Former {
		t.Errorf("Find() in Redis = %+v, %v, want the secrets", got, err)
	}
}
