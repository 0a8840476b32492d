package resourcesync

import (
	"errors"
	"io"
	"runtime"
	"strings"
	"testing"
)

// CheckMemory is called with at least the memory that a document needs, even for documents
// that need much more memory than they have text.
func TestCheckMemory(t *testing.T) {
	links := strings.Repeat(`{"rel":"a","href":"b:"},`, 99) + `{"rel":"a","href":"b:"}`
	xmlLinks := strings.Repeat(`<rs:ln rel="a" href="b:"/>`, 100)
	attrs := ""
	for i := range 90 {
		attrs += ` a` + string(rune('a'+i%26)) + string(rune('a'+i/26)) + `=""`
	}
	const head = `<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9" xmlns:rs="http://www.openarchives.org/rs/terms/">`
	for _, test := range []struct {
		name, start, entry, end string
		n                       int
		read                    func(io.Reader, Limits) (*Document, error)
	}{
		{"JSON, short", `{"changes":[{"loc":"a:"}`, `,{"loc":"a:"}`, `]}`, 49_000, ReadJSON},
		{"JSON, links", `{"changes":[{"loc":"a:"}`, `,{"loc":"a:","ln":[` + links + `]}`, `]}`, 10_000, ReadJSON},
		{"JSON, text", `{"changes":[{"loc":"a:"}`, `,{"loc":"a:` + strings.Repeat("x", 1000) + `"}`, `]}`, 20_000, ReadJSON},
		{"XML, short", head, `<url><loc>a:</loc></url>`, `</urlset>`, 49_000, ReadXML},
		{"XML, links", head, `<url><loc>a:</loc>` + xmlLinks + `</url>`, `</urlset>`, 5_000, ReadXML},
		{"XML, element with many attributes", head + "<url", strings.Repeat(` a=""`, 50_000), "/></urlset>", 7, ReadXML},
	} {
		t.Run(test.name, func(t *testing.T) {
			n := test.n
			if testing.Short() {
				n = (n + 4) / 5
			}
			text := test.start + strings.Repeat(test.entry, n) + test.end
			var before, after runtime.MemStats
			reported, used := int64(0), uint64(0)
			runtime.GC()
			runtime.ReadMemStats(&before)
			calls := 0
			d, err := test.read(strings.NewReader(text), Limits{CheckMemory: func(bytes int64) error {
				reported = max(reported, bytes)
				if calls++; calls%2000 == 0 { // measure the live heap
					runtime.GC()
					runtime.ReadMemStats(&after)
					used = max(used, after.HeapAlloc-min(after.HeapAlloc, before.HeapAlloc))
				}
				return nil
			}})
			if _, rejected := errors.AsType[*Error](err); err != nil && !rejected {
				t.Fatal(err)
			}
			runtime.GC()
			runtime.ReadMemStats(&after)
			used = max(used, after.HeapAlloc-min(after.HeapAlloc, before.HeapAlloc))
			t.Logf("%d bytes of text used %d bytes of memory; CheckMemory was called with up to %d", len(text), used, reported)
			if used > uint64(reported)+1<<20 {
				t.Errorf("%d bytes of text used %d bytes of memory, want at most 1 MiB more than the maximum of CheckMemory, %d", len(text), used, reported)
			}
			runtime.KeepAlive(d)
		})
	}
}

// An error of CheckMemory stops reading within a bounded number of bytes, and an endless entry
// is rejected.
func TestCheckMemoryError(t *testing.T) {
	full := errors.New("memory full")
	for name, test := range map[string]struct {
		read         func(io.Reader, Limits) (*Document, error)
		head, repeat string
	}{
		"JSON":                          {ReadJSON, `{"changes":[`, `{"loc":"a:","change":"updated"},`},
		"JSON, endless text":            {ReadJSON, `{"changes":[{"loc":"`, `aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa`},
		"XML":                           {ReadXML, `<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9">`, `<url><loc>a:</loc></url>`},
		"XML, attributes":               {ReadXML, `<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9"><url`, ` abcdefg=""`},
		"XML, endless text":             {ReadXML, `<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9"><url><loc>`, `aaaaaaaaaaaaaaaaaaaaaaa`},
		"XML, endless comment":          {ReadXML, `<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9"><!--`, `aaaaaaaaaaaaaaaaaaaaaaa`},
		"XML, comments before the root": {ReadXML, ``, `<!-- x -->`},
		"XML, processing instructions":  {ReadXML, ``, `<?x y?>`},
	} {
		t.Run(name, func(t *testing.T) {
			read := int64(0)
			endless := io.MultiReader(strings.NewReader(test.head), &repeater{text: test.repeat, read: &read})
			_, err := test.read(endless, Limits{Bytes: 1 << 40, Entries: 1 << 30, CheckMemory: func(bytes int64) error {
				if bytes > 2<<20 {
					return full
				}
				return nil
			}})
			if !errors.Is(err, full) && !errors.Is(err, ErrTooLarge) {
				t.Errorf("error with CheckMemory = %v, want %v or %v", err, full, ErrTooLarge)
			}
			if read > 3<<20 {
				t.Errorf("read %d bytes, want at most 3 MiB", read)
			}
			read = 0
			endless = io.MultiReader(strings.NewReader(test.head), &repeater{text: test.repeat, read: &read})
			limits := Limits{}
			if testing.Short() {
				limits.Bytes = 4 << 20
			}
			if _, err = test.read(endless, limits); !errors.Is(err, ErrTooLarge) {
				t.Errorf("error without CheckMemory = %v, want %v", err, ErrTooLarge)
			}
		})
	}
}

// A repeater is an endless reader that repeats text.
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
