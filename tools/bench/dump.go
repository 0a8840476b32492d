//go:build linux

package main

import (
	"archive/zip"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/klauspost/compress/flate"
)

// dump measures the first dump of a directory.
func (b *bench) dump(t *table) {
	s := b.synced(b.files)
	b.compare(t, count(s.n)+" files of 1 KB",
		[]metric{perSecond("files").should(aim{limit: .5, least: true, ratio: true}), cpuEach("file")},
		func() sample {
			u := measure(func() { must(s.zip(filepath.Join(b.dir(), "all.zip"))) }, s.hub, s.origin)
			u.cpu, u.count = u.own, float64(s.n)
			return u
		},
		func() sample {
			u, out := s.run(s.build("rspublish"), "dump", "-json", "-base", s.base(), "-out-url", "https://dumps.example.org/", s.dir, filepath.Join(b.dir(), "dumps"))
			var did struct{ Listed, Gaps int }
			must(json.Unmarshal(out, &did))
			if did.Listed != s.n || did.Gaps > 0 {
				must(fmt.Errorf("dump: got %+v, want %d resources", did, s.n))
			}
			u.count = float64(s.n)
			return u
		})
}

// zip packs all files in the plainest way, with the compressor that rspublish has.
func (s *syncedHub) zip(name string) error {
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	defer f.Close()
	deflate, err := flate.NewWriter(nil, flate.DefaultCompression)
	if err != nil {
		return err
	}
	z := zip.NewWriter(f)
	z.RegisterCompressor(zip.Deflate, func(w io.Writer) (io.WriteCloser, error) {
		deflate.Reset(w)
		return deflate, nil
	})
	for i := range s.n {
		in, err := os.Open(filepath.Join(s.dir, pathOf(i)))
		if err != nil {
			return err
		}
		w, err := z.Create(pathOf(i))
		if err == nil {
			_, err = io.Copy(w, in)
		}
		if err = cmp.Or(err, in.Close()); err != nil {
			return err
		}
	}
	return cmp.Or(z.Close(), f.Sync())
}
