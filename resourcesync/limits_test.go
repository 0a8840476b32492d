package resourcesync

import (
	"errors"
	"io"
	"runtime"
	"strings"
	"testing"
)

// What Room is told is about what a document takes, for documents that take much more
// memory than they have text.
func TestRoom(t *testing.T) {
	links := strings.Repeat(`{"rel":"a","href":"b:"},`, 99) + `{"rel":"a","href":"b:"}`
	xmlLinks := strings.Repeat(`<rs:ln rel="a" href="b:"/>`, 100)
	attrs := ""
	for i := range 90 {
		attrs += ` a` + string(rune('a'+i%26)) + string(rune('a'+i/26)) + `=""`
	}
	const head = `<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9" xmlns:rs="http://www.openarchives.org/rs/terms/">`
	for _, test := range []struct {
		name, begin, entry, end string
		n                       int
		read                    func(io.Reader, Limits) (*Document, error)
	}{
		{"JSON, short", `{"changes":[{"loc":"a:"}`, `,{"loc":"a:"}`, `]}`, 49_000, ReadJSON},
		{"JSON, links", `{"changes":[{"loc":"a:"}`, `,{"loc":"a:","ln":[` + links + `]}`, `]}`, 10_000, ReadJSON},
		{"JSON, text", `{"changes":[{"loc":"a:"}`, `,{"loc":"a:` + strings.Repeat("x", 1000) + `"}`, `]}`, 20_000, ReadJSON},
		{"XML, short", head, `<url><loc>a:</loc></url>`, `</urlset>`, 49_000, ReadXML},
		{"XML, links", head, `<url><loc>a:</loc>` + xmlLinks + `</url>`, `</urlset>`, 5_000, ReadXML},
		{"XML, an element of many attributes", head + "<url", strings.Repeat(` a=""`, 50_000), "/></urlset>", 7, ReadXML},
	} {
		t.Run(test.name, func(t *testing.T) {
			n := test.n
			if testing.Short() {
				n = (n + 4) / 5
			}
			text := test.begin + strings.Repeat(test.entry, n) + test.end
			var before, after runtime.MemStats
			most, worst := int64(0), uint64(0)
			runtime.GC()
			runtime.ReadMemStats(&before)
			calls := 0
			d, err := test.read(strings.NewReader(text), Limits{CheckMemory: func(bytes int64) error {
				most = max(most, bytes)
				if calls++; calls%2000 == 0 { // what lives now
					runtime.GC()
					runtime.ReadMemStats(&after)
					worst = max(worst, after.HeapAlloc-min(after.HeapAlloc, before.HeapAlloc))
				}
				return nil
			}})
			if _, refused := errors.AsType[*Error](err); err != nil && !refused {
				t.Fatal(err)
			}
			runtime.GC()
			runtime.ReadMemStats(&after)
			worst = max(worst, after.HeapAlloc-min(after.HeapAlloc, before.HeapAlloc))
			t.Logf("%d bytes of text took %d, and Room was told %d", len(text), worst, most)
			if worst > uint64(most)+1<<20 {
				t.Errorf("%d bytes of text took %d, and Room was told %d", len(text), worst, most)
			}
			runtime.KeepAlive(d)
		})
	}
}

// An error of Room ends the reading at once, and an entry that does not end is refused.
func TestRoomEnds(t *testing.T) {
	full := errors.New("no room")
	for name, test := range map[string]struct {
		read         func(io.Reader, Limits) (*Document, error)
		head, repeat string
	}{
		"JSON":              {ReadJSON, `{"changes":[`, `{"loc":"a:","change":"updated"},`},
		"JSON, one text":    {ReadJSON, `{"changes":[{"loc":"`, `aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa`},
		"XML":               {ReadXML, `<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9">`, `<url><loc>a:</loc></url>`},
		"XML, attributes":   {ReadXML, `<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9"><url`, ` abcdefg=""`},
		"XML, one text":     {ReadXML, `<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9"><url><loc>`, `aaaaaaaaaaaaaaaaaaaaaaa`},
		"XML, one comment":  {ReadXML, `<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9"><!--`, `aaaaaaaaaaaaaaaaaaaaaaa`},
		"XML, before it":    {ReadXML, ``, `<!-- x -->`},
		"XML, declarations": {ReadXML, ``, `<?x y?>`},
	} {
		read := int64(0)
		endless := io.MultiReader(strings.NewReader(test.head), &repeater{text: test.repeat, read: &read})
		_, err := test.read(endless, Limits{Bytes: 1 << 40, Entries: 1 << 30, CheckMemory: func(bytes int64) error {
			if bytes > 2<<20 {
				return full
			}
			return nil
		}})
		if !errors.Is(err, full) && !errors.Is(err, ErrTooLarge) {
			t.Errorf("%s: %v", name, err)
		}
		if read > 3<<20 {
			t.Errorf("%s: %d bytes were read", name, read)
		}
		read = 0
		endless = io.MultiReader(strings.NewReader(test.head), &repeater{text: test.repeat, read: &read})
		limits := Limits{}
		if testing.Short() {
			limits.Bytes = 4 << 20
		}
		if _, err = test.read(endless, limits); !errors.Is(err, ErrTooLarge) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A repeater is a text again and again.
type repeater struct {
	text string
	at   int
	read *int64
}

func (r *repeater) Read(p []byte) (n int, err error) {
	for n < len(p) {
		m := copy(p[n:], r.text[r.at:])
		n, r.at = n+m, (r.at+m)%len(r.text)
	}
	*r.read += int64(n)
	return n, nil
}
