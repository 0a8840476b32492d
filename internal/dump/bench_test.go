package dump

import (
	"archive/zip"
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"iter"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/klauspost/compress/flate"

	"github.com/rshub/rshub/resourcesync"
)

// BenchmarkUpdate packs files, and compares that with the minimum work: reading each file and
// writing it to a durable ZIP file with the same compressor.
func BenchmarkUpdate(b *testing.B) {
	for _, test := range []struct {
		name        string
		files, size int
		media       string
	}{{"small", 100_000, 2_000, "text/plain"}, {"large", 20, 20 << 20, "text/plain"}, {"large-stored", 20, 20 << 20, "image/jpeg"}} {
		b.Run(test.name, func(b *testing.B) {
			all := files(b, test.files, test.size, test.media)
			bare(b, all) // so that the files are in the page cache for both
			list := func(context.Context) iter.Seq2[*Resource, error] {
				return func(yield func(*Resource, error) bool) {
					for i := range all {
						if !yield(&all[i], nil) {
							return
						}
					}
				}
			}
			b.Run("bare", func(b *testing.B) {
				for b.Loop() {
					bare(b, all)
				}
				b.SetBytes(int64(test.files * test.size))
			})
			b.Run("make", func(b *testing.B) {
				for b.Loop() {
					dir := filepath.Join(b.TempDir(), "out")
					r, err := Update(b.Context(), dir, list, options())
					if err != nil || r.Listed != uint64(test.files) {
						b.Fatalf("Update() = %+v, %v", r, err)
					}
					_ = os.RemoveAll(dir)
				}
				b.SetBytes(int64(test.files * test.size))
			})
		})
	}
}

// files creates files of random words.
func files(b *testing.B, n, size int, media string) []Resource {
	r := rand.New(rand.NewPCG(1, 2))
	var words [4096]string
	for i := range words {
		words[i] = fmt.Sprintf("%x ", r.Uint32()>>r.IntN(24))
	}
	dir := b.TempDir()
	all, content := make([]Resource, n), make([]byte, 0, size+16)
	for i := range all {
		for content = content[:0]; len(content) < size; {
			content = append(content, words[r.IntN(len(words))]...)
		}
		content = content[:size]
		name := filepath.Join(dir, fmt.Sprint(i/1000), fmt.Sprint(i))
		if i%1000 == 0 {
			if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
				b.Fatal(err)
			}
		}
		if err := os.WriteFile(name, content, 0o600); err != nil {
			b.Fatal(err)
		}
		length := int64(size)
		all[i] = Resource{Change: resourcesync.Change{Loc: fmt.Sprintf("%s%09d", site, i), Hash: fmt.Sprintf("sha-256:%x", sha256.Sum256(content)), Length: &length, Type: media},
			Open: func() (io.ReadCloser, error) { return os.Open(name) }}
	}
	return all
}

// bare reads files and writes one ZIP file.
func bare(b *testing.B, all []Resource) {
	f, err := os.Create(filepath.Join(b.TempDir(), "bare.zip"))
	if err != nil {
		b.Fatal(err)
	}
	z := zip.NewWriter(f)
	deflate, err := flate.NewWriter(nil, flate.DefaultCompression)
	if err != nil {
		b.Fatal(err)
	}
	z.RegisterCompressor(zip.Deflate, func(w io.Writer) (io.WriteCloser, error) {
		deflate.Reset(w)
		return deflate, nil
	})
	for i := range all {
		in, err := all[i].Open()
		if err != nil {
			b.Fatal(err)
		}
		h := &zip.FileHeader{Name: fmt.Sprint(i), Method: zip.Deflate}
		if isCompressed(all[i].Change.Type) {
			h.Method = zip.Store
		}
		w, err := z.CreateHeader(h)
		if err == nil {
			_, err = io.Copy(w, in)
		}
		if err != nil {
			b.Fatal(err)
		}
		_ = in.Close() // opened for reading
	}
	if err := z.Close(); err != nil {
		b.Fatal(err)
	}
	if err := f.Sync(); err != nil {
		b.Fatal(err)
	}
	if err := f.Close(); err != nil {
		b.Fatal(err)
	}
	_ = os.Remove(f.Name())
}
