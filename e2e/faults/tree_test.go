package faults

import (
	"crypto/sha256"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rshub/rshub/internal/mirror/filename"
)

const maxGroup = 40 // maximum number of files that are created, removed or moved with their directory

// A tree is a directory whose files change at random.
type tree struct {
	dir   string
	r     *rand.Rand
	names int      // number of names for new files
	paths []string // paths of current and former files
	n     int      // number of the newest content
}

func newTree(t testing.TB, r *rand.Rand, files int) *tree {
	w := &tree{dir: t.TempDir(), r: r, names: files + files/4}
	for len(w.paths) < files {
		w.create()
	}
	return w
}

// unusualNames are names that are special in URLs, file systems or programs. %d is the number of the
// name.
var unusualNames = []string{
	"%d.xml", "%d.pdf", "%d", "%d.html", "a file %d.txt", "%d&b=c;d", "%d%%25.txt", "ü%d.txt", "u\u0308%d.txt", "%d#x?y=z", "+%d,v=2", "🦉%d",
	".%d", "con.%d", "%d.", "'%d' \"q\"", "a:%d|<>*\\b", "tab\t%d", "new\nline %d", "CASE%d", "Case%d", "%%~file%d", "index%d.html/index.html", " %d ",
	strings.Repeat("long", 40) + "%d.tar.gz", strings.Repeat("é", 110) + "%d", "-%d", "%%2F%d", "$(%d)`", "{%d}[]^",
}

// name returns a path for a file. Some paths differ only in letter case.
func (w *tree) name() string {
	n := w.r.IntN(w.names)
	q := n / len(unusualNames)
	p := fmt.Sprintf(unusualNames[n%len(unusualNames)], q)
	for i := range q % 4 {
		p = fmt.Sprintf([]string{"d%d", "dir %d", "D%d", "ö%d"}[(q+i)%4], (q/4+i)%(3+w.names/400)) + "/" + p
	}
	return p
}

func (w *tree) join(p string) string { return filepath.Join(w.dir, filepath.FromSlash(p)) }

// anyFile returns an existing file.
func (w *tree) anyFile() string {
	for range 20 {
		p := w.paths[w.r.IntN(len(w.paths))]
		if info, err := os.Lstat(w.join(p)); err == nil && info.Mode().IsRegular() {
			return p
		}
	}
	return "nosuch"
}

// content returns a content that no file had before.
func (w *tree) content() []byte {
	w.n++
	b := fmt.Appendf(nil, "content %d\n", w.n)
	switch w.r.IntN(50) {
	case 0:
		return append(b, strings.Repeat(fmt.Sprintf("%08d", w.n), 20_000+w.r.IntN(20_000))...)
	case 1:
		return nil
	}
	return append(b, strings.Repeat("x", w.r.IntN(4_000))...)
}

// write replaces the content of a file.
func (w *tree) write(p string) bool { return os.WriteFile(w.join(p), w.content(), 0o644) == nil }

// create creates a file, possibly with its directory.
func (w *tree) create() {
	p := w.name()
	if _, err := os.Lstat(w.join(p)); err == nil {
		return
	}
	if os.MkdirAll(w.join(path.Dir(p)), 0o755) == nil && w.write(p) { // fails if a file is in the way
		w.paths = append(w.paths, p)
	}
}

// change stepCreate a random change, and ignores errors.
func (w *tree) change() {
	p := w.anyFile()
	dir := path.Dir(p)
	if dir == "." {
		dir = "nosuch"
	}
	switch n := w.r.IntN(100); {
	case n < 26:
		w.create()
	case n < 50:
		w.write(p)
	case n < 54: // slowly
		if f, err := os.Create(w.join(p)); err == nil {
			for range 3 {
				_, _ = f.Write(w.content())
				time.Sleep(upTo(w.r, 60*time.Millisecond)) // a slow writer
			}
			_ = f.Close()
		}
	case n < 61: // as rsync does
		if w.write(p + "~") {
			_ = os.Rename(w.join(p+"~"), w.join(p))
		}
	case n < 72:
		_ = os.Remove(w.join(p))
	case n < 83: // possibly onto another file
		w.move(p, w.name())
	case n < 89: // swap two files
		if other := w.anyFile(); other != p && os.Rename(w.join(p), w.join("swapped~")) == nil {
			_ = os.Rename(w.join(other), w.join(p))
			_ = os.Rename(w.join("swapped~"), w.join(other))
		}
	case n < 92: // replace the file with a directory
		if strings.Count(p, "/") <= 5 && os.Remove(w.join(p)) == nil && os.Mkdir(w.join(p), 0o755) == nil && w.write(p+"/in") {
			w.paths = append(w.paths, p+"/in")
		}
	case n < 95: // move a directory
		to := fmt.Sprint("moved ", w.n)
		if w.r.IntN(3) > 0 {
			to = path.Join(path.Dir(w.anyFile()), to)
		}
		if !strings.HasPrefix(to, dir+"/") && strings.Count(to, "/") <= 3 && len(files(w.join(dir))) <= maxGroup {
			w.move(dir, to)
		}
	case n < 97:
		if len(files(w.join(dir))) <= maxGroup {
			_ = os.RemoveAll(w.join(dir))
		}
	default: // add a directory with many files at once
		w.n++
		_ = os.MkdirAll(w.join("next~/deep"), 0o755)
		for i := range 1 + w.r.IntN(maxGroup) {
			w.write(fmt.Sprintf([]string{"next~/%d", "next~/deep/%d"}[i%2], i))
		}
		w.move("next~", fmt.Sprint("brought ", w.n))
	}
}

// move moves a file or a directory.
func (w *tree) move(from, to string) {
	if os.MkdirAll(w.join(path.Dir(to)), 0o755) == nil && os.Rename(w.join(from), w.join(to)) == nil {
		for _, below := range files(w.join(to)) {
			w.paths = append(w.paths, path.Join(to, below))
		}
	}
}

// changeRandomly changes the tree for a number of steps, some of them in bursts.
func (w *tree) changeRandomly(steps int, pause time.Duration) {
	for burst := 0; steps > 0; steps-- {
		w.change()
		if burst > 0 {
			burst--
			continue
		}
		if w.r.IntN(40) == 0 {
			burst = w.r.IntN(40)
		}
		time.Sleep(upTo(w.r, 2*pause)) // pace of the changes, not a wait for a condition
	}
}

// files returns the paths of the files below a directory, without those in the state directory
// of rsmirror. For a file it returns an empty path.
func files(dir string) (all []string) {
	_ = filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		switch {
		case err != nil: // removed in the meantime
		case d.Name() == filename.State:
			return fs.SkipDir
		case !d.IsDir():
			all = append(all, strings.TrimPrefix(filepath.ToSlash(p[len(dir):]), "/"))
		}
		return nil
	})
	return all
}

// contents returns the SHA-256 of each file of a directory. A file that is created or removed at
// the same time may be missing.
func contents(dir string) map[string]string {
	all := map[string]string{}
	for _, name := range files(dir) {
		if b, err := os.ReadFile(filepath.Join(dir, filepath.FromSlash(name))); err == nil {
			all[name] = sum(b)
		}
	}
	return all
}

func sum(b []byte) string { return fmt.Sprintf("%x", sha256.Sum256(b)) }
