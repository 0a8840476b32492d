package callback

import (
	"errors"
	"reflect"
	"strconv"
	"testing"
	"time"

	"github.com/rshub/rshub/changelog"
)

// No field is forgotten: each is set, to something else than the others.
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
			t.Fatalf("a field of kind %v", v.Kind())
		}
	}
	var p Progress
	set(reflect.ValueOf(&p).Elem())
	if got, err := decodeProgress(encodeProgress(&p)); err != nil || !reflect.DeepEqual(got, p) {
		t.Errorf("is %+v, %v, want %+v", got, err, p)
	}
}

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
