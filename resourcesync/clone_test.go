package resourcesync

import (
	"fmt"
	"reflect"
	"runtime"
	"strings"
	"testing"
	"time"
	"unsafe"

	"github.com/rshub/rshub/internal/testutil"
)

// A clone equals the change, and shares no string, slice or number with it.
func TestClone(t *testing.T) {
	length, text := int64(7), strings.Repeat("x", 100)
	full := filledValue(reflect.TypeFor[Change](), text, &length).Interface().(Change)
	for _, tt := range []struct {
		name   string
		change Change
	}{
		{"every field", full},
		{"empty strings", filledValue(reflect.TypeFor[Change](), text[:0], &length).Interface().(Change)},
		{"zero", Change{}},
		{"known change type", Change{Change: ChangeType("a deleted one"[2:9])}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			clone := tt.change.Clone()
			if !reflect.DeepEqual(clone, tt.change) {
				t.Errorf("Clone() = %+v, want %+v", clone, tt.change)
			}
			checkOwned(t, "Change", reflect.ValueOf(clone), text, &length)
		})
	}
}

// filledValue returns a value of type t in which all strings are text, all pointers are length, and
// all slices have two elements.
func filledValue(t reflect.Type, text string, length *int64) reflect.Value {
	v := reflect.New(t).Elem()
	switch {
	case t == reflect.TypeFor[time.Time]():
		v.Set(reflect.ValueOf(time.Unix(1, 2).UTC()))
	case t == reflect.TypeFor[*int64]():
		v.Set(reflect.ValueOf(length))
	case t.Kind() == reflect.String:
		v.SetString(text)
	case t.Kind() == reflect.Int:
		v.SetInt(3)
	case t.Kind() == reflect.Slice:
		v.Set(reflect.Append(v, filledValue(t.Elem(), text, length), filledValue(t.Elem(), text, length)))
	case t.Kind() == reflect.Struct:
		for i := range t.NumField() {
			v.Field(i).Set(filledValue(t.Field(i).Type, text, length))
		}
	default:
		panic("field of unexpected type " + t.String())
	}
	return v
}

// checkOwned checks that v shares memory with neither text nor length.
func checkOwned(t *testing.T, name string, v reflect.Value, text string, length *int64) {
	t.Helper()
	switch {
	case v.Type() == reflect.TypeFor[time.Time]():
	case v.Kind() == reflect.Pointer:
		if v.Interface().(*int64) == length {
			t.Errorf("%s shares memory with the original, want a copy", name)
		}
	case v.Kind() == reflect.String:
		if unsafe.StringData(v.String()) == unsafe.StringData(text) {
			t.Errorf("%s shares memory with the original, want a copy", name)
		}
	case v.Kind() == reflect.Slice:
		for i := range v.Len() {
			checkOwned(t, name, v.Index(i), text, length)
		}
	case v.Kind() == reflect.Struct:
		for i := range v.NumField() {
			checkOwned(t, name+"."+v.Type().Field(i).Name, v.Field(i), text, length)
		}
	}
}

// The entries of a document with much white space do not keep that space in memory.
func TestReadXMLDropsSpace(t *testing.T) {
	const n = 20
	space := strings.Repeat(" ", 50_000)
	var doc strings.Builder
	doc.WriteString(`<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9" xmlns:rs="http://www.openarchives.org/rs/terms/"><rs:md capability="changelist"/>`)
	for i := range n {
		fmt.Fprintf(&doc, `<url><loc>%shttps://example.org/%d%[1]s</loc><rs:md change="updated" type="%[1]stext/html"/></url>`, space, i)
	}
	doc.WriteString(`</urlset>`)
	text := doc.String()
	retained := testutil.RetainedBytes(t, func() any {
		d, err := ReadXML(strings.NewReader(text), Limits{})
		if err != nil || len(d.Items) != n || d.Items[0].Loc != "https://example.org/0" || d.Items[0].Type != "text/html" {
			t.Fatalf("ReadXML: got %d entries, %v; want %d trimmed ones", len(d.Items), err, n)
		}
		return d
	})
	if retained > n*entryMemory {
		t.Errorf("%d entries retain %d bytes, want at most %d", n, retained, n*entryMemory)
	}
	runtime.KeepAlive(text)
}
