package callback

import (
	"errors"
	"reflect"
	"testing"
	"time"

	"github.com/rshub/rshub/changelog"
)

// FuzzProgress: what is read is either damaged or says the same when it is
// written and read again.
func FuzzProgress(f *testing.F) {
	at := time.UnixMicro(1_772_600_767_000_089).UTC()
	full := Progress{
		Cursor: changelog.Cursor{Position: 1<<53 - 1, Micros: 1<<53 - 1}, Gap: changelog.Cursor{Position: 7, Micros: 8}, Gaps: 3,
		Diverged: true, Failed: 5, Next: at,
		Last: []Attempt{{At: at, Kind: "deliver", Status: 503, Took: 1_234_567, Changes: 1000, Error: "é"}, {}},
	}
	for _, p := range []Progress{{}, full} {
		b := encodeProgress(&p)
		got, err := decodeProgress(b)
		if err != nil || !reflect.DeepEqual(got, p) {
			f.Fatalf("is %+v, %v, want %+v", got, err, p)
		}
		for n := range b {
			if _, err := decodeProgress(b[:n]); !errors.Is(err, changelog.ErrCorrupt) {
				f.Fatalf("the first %d bytes: %v", n, err)
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
			t.Fatalf("is %+v, %v, want %+v", again, err, p)
		}
	})
}
