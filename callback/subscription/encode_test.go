package subscription

import (
	"encoding/json"
	"errors"
	"reflect"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/rshub/rshub/changelog"
	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/resourcesync"
)

// Every field of a Progress is stored.
func TestProgressFields(t *testing.T) {
	n := int64(0)
	var set func(v reflect.Value)
	set = func(v reflect.Value) {
		n++
		if _, isTime := v.Interface().(time.Time); isTime {
			v.Set(reflect.ValueOf(time.UnixMicro(n).UTC()))
			return
		}
		switch v.Kind() {
		case reflect.Int, reflect.Int64:
			v.SetInt(n)
		case reflect.Uint64:
			v.SetUint(uint64(n))
		case reflect.Bool:
			v.SetBool(true)
		case reflect.String:
			v.SetString(strconv.FormatInt(n, 10))
		case reflect.Slice:
			v.Set(reflect.MakeSlice(v.Type(), 2, 2))
			for i := range v.Len() {
				set(v.Index(i))
			}
		case reflect.Struct:
			for i := range v.NumField() {
				set(v.Field(i))
			}
		default:
			t.Fatalf("field of kind %v: add it to this test", v.Kind())
		}
	}
	var p Progress
	set(reflect.ValueOf(&p).Elem())
	if got, err := decodeProgress(encodeProgress(&p)); err != nil || !reflect.DeepEqual(got, p) {
		t.Errorf("decodeProgress() = %+v, %v, want %+v", got, err, p)
	}
}

// Bytes are corrupt, or are decoded to a Progress that survives a round trip.
func FuzzProgress(f *testing.F) {
	at := time.UnixMicro(1_772_600_767_000_089).UTC()
	full := Progress{
		Cursor: feed.Cursor{Position: 1<<53 - 1, Micros: 1<<53 - 1}, Gap: feed.Cursor{Position: 7, Micros: 8}, Gaps: 3,
		Diverged: true, Failed: 5, Next: at,
		Last: []Attempt{{At: at, Kind: "deliver", Status: 503, Took: 1_234_567, Changes: 1000, Error: "é"}, {}},
	}
	for _, p := range []Progress{{}, full} {
		b := encodeProgress(&p)
		got, err := decodeProgress(b)
		if err != nil || !reflect.DeepEqual(got, p) {
			f.Fatalf("decodeProgress() = %+v, %v, want %+v", got, err, p)
		}
		for n := range b {
			if _, err := decodeProgress(b[:n]); !errors.Is(err, changelog.ErrCorrupt) {
				f.Fatalf("decodeProgress() of %d bytes = %v, want ErrCorrupt", n, err)
			}
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		p, err := decodeProgress(b)
		if err != nil {
			if !errors.Is(err, changelog.ErrCorrupt) {
				t.Fatal(err)
			}
			return
		}
		again, err := decodeProgress(encodeProgress(&p))
		if err != nil || !reflect.DeepEqual(again, p) {
			t.Fatalf("decodeProgress() = %+v, %v, want %+v", again, err, p)
		}
	})
}

// A damaged subscription or request is detected, wherever it is damaged.
func TestDamagedJSON(t *testing.T) {
	at := time.UnixMicro(1_772_600_767_000_089).UTC()
	s := Subscription{Set: "demo", Callback: "https://example.org/callback", Terms: Terms{Secret: "s3cret"}, LeaseEnd: at.Add(time.Hour), Made: at, Renewed: at}
	r := Request{Mode: "subscribe", Set: "demo", Callback: "https://example.org/callback", Terms: Terms{Secret: "s3cret"}, At: at}
	stored := mustEncode(t, s, nil)
	request, err := encodeRequest(&r, nil)
	if err != nil {
		t.Fatal(err)
	}
	if got := mustDecode(t, stored, nil); !reflect.DeepEqual(got, s) {
		t.Fatalf("decodeSubscription() = %+v, want %+v", got, s)
	}
	if got := decodeRequest(0, request, nil); !reflect.DeepEqual(got, r) {
		t.Fatalf("decodeRequest() = %+v, want %+v", got, r)
	}
	check := func(b []byte) {
		t.Helper()
		if got, err := decodeSubscription(b, nil); !errors.Is(err, changelog.ErrCorrupt) || !reflect.DeepEqual(got, Subscription{}) {
			t.Errorf("decodeSubscription(%s) = %+v, %v, want ErrCorrupt", b, got, err)
		}
	}
	flips := func(b []byte, do func([]byte)) {
		for i := range b {
			for bit := range 8 {
				flipped := slices.Clone(b)
				flipped[i] ^= 1 << bit
				do(flipped)
			}
		}
	}
	flips(stored, check)
	for i := range stored {
		check(stored[:i])
	}
	flips(request, func(b []byte) {
		if got := decodeRequest(0, b, nil); got.Mode != "" {
			t.Errorf("decodeRequest(%s) = %+v, want no Mode", b, got)
		}
	})
	bare, err := json.Marshal(&s)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := decodeSubscription(bare, nil); !errors.Is(err, changelog.ErrCorrupt) {
		t.Errorf("decodeSubscription() without a checksum = %+v, %v, want ErrCorrupt", got, err)
	}
}

// Old versions stored no number of the latest delivery.
func TestProgressWithoutDelivery(t *testing.T) {
	want := Progress{Cursor: feed.Cursor{Position: 7, Micros: 8}, Last: []Attempt{{Kind: "deliver", Status: 204}}}
	old := encodeProgress(&want)
	with := want
	with.Delivery = 9
	if b := encodeProgress(&with); string(b[:len(old)]) != string(old) || len(b) != len(old)+1 {
		t.Errorf("encodeProgress() = %x, want the number at the end", b)
	}
	if got, err := decodeProgress(old); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("decodeProgress() = %+v, %v, want %+v", got, err, want)
	}
}

// Old versions stored no verify token.
func TestRequestWithoutVerifyToken(t *testing.T) {
	at := time.UnixMicro(1_772_600_767_000_089).UTC()
	want := Request{Mode: Subscribe, Set: "demo", Callback: "https://example.org/callback", Terms: Terms{Secret: "s3cret"}, At: at}
	const old = `{"mode":"subscribe","set":"demo","callback":"https://example.org/callback","secret":"s3cret","at":"2026-03-04T05:06:07.000089Z","sum":"48dfa930"}`
	if got := decodeRequest(0, []byte(old), nil); !reflect.DeepEqual(got, want) {
		t.Errorf("decodeRequest(%s) = %+v, want %+v", old, got, want)
	}
	if got, err := encodeRequest(&want, nil); err != nil || string(got) != old {
		t.Errorf("encodeRequest() = %s, %v, want %s", got, err, old)
	}
}

// Old versions stored the terms in another order.
func TestTermsApart(t *testing.T) {
	at := time.UnixMicro(1_772_600_767_000_089).UTC()
	const terms = `"filter":{"Prefix":"https://example.org/","Changes":["created"],"Types":["text/*"],"Collection":"https://example.org/c"},"every":60000000000,`
	want := Terms{Secret: "s3cret", Every: time.Minute, Filter: feed.Filter{
		Prefix: "https://example.org/", Changes: []resourcesync.ChangeType{resourcesync.Created}, Types: []string{"text/*"}, Collection: "https://example.org/c",
	}}
	t.Run("subscription", func(t *testing.T) {
		const old = `{"set":"demo","callback":"https://example.org/callback","secret":"s3cret","former":"f0rmer",` + terms +
			`"leaseEnd":"2026-03-04T05:06:07.000089Z","token":"t","made":"2026-03-04T05:06:07.000089Z","formerEnd":"2026-03-04T05:06:07.000089Z","sum":"109d5e4b"}`
		want := Subscription{Set: "demo", Callback: "https://example.org/callback", Terms: want, Former: "f0rmer", LeaseEnd: at, Token: "t", Made: at, FormerEnd: at}
		if got, err := decodeSubscription([]byte(old), nil); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("decodeSubscription(%s) = %+v, %v, want %+v", old, got, err, want)
		}
	})
	t.Run("request", func(t *testing.T) {
		const old = `{"mode":"subscribe","set":"demo","callback":"https://example.org/callback","secret":"s3cret","sealed":"key","lease":3600000000000,` + terms +
			`"at":"2026-03-04T05:06:07.000089Z","sum":"e658bbf8"}`
		want := Request{Mode: Subscribe, Set: "demo", Callback: "https://example.org/callback", Terms: want, Sealed: "key", Lease: time.Hour, At: at}
		if got := decodeRequest(0, []byte(old), nil); !reflect.DeepEqual(got, want) {
			t.Errorf("decodeRequest(%s) = %+v, want %+v", old, got, want)
		}
	})
}
