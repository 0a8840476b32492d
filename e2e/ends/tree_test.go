package ends

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rshub/rshub/e2e/internal/hubtest"
)

// A tree is a directory whose files change at random.
type tree struct {
	t     testing.TB
	dir   string
	r     *rand.Rand
	names int // how many names there are for files, so how many files at most

	files []string       // their paths
	at    map[string]int // where a path is in files
	done  map[string]int // how often each kind of change was made
	n     int            // of the newest content
}

func newTree(t testing.TB, r *rand.Rand, files int) *tree {
	w := &tree{t: t, dir: t.TempDir(), r: r, names: files + files/4, at: map[string]int{}, done: map[string]int{}}
	for len(w.files) < files {
		w.create()
	}
	return w
}

// odd are names that a URL, a file system or a program may take for something else. %d is
// the number of the name.
var odd = []string{
	"%d.xml", "%d.pdf", "%d", "%d.html", "a file %d.txt", "%d&b=c;d", "%d%%25.txt", "ü%d.txt", "u\u0308%d.txt", "%d#x?y=z", "+%d,v=2", "🦉%d",
	".%d", "con.%d", "%d.", "'%d' \"q\"", "a:%d|<>*\\b", "tab\t%d", "new\nline %d", "CASE%d", "Case%d", "%%~file%d", "index%d.html/", " %d ",
	strings.Repeat("long", 40) + "%d.tar.gz", strings.Repeat("é", 110) + "%d", "-%d", "%%2F%d", "$(%d)`", "{%d}[]^",
}

// name returns a path for a file; some differ in nothing but letter case.
func (w *tree) name() string {
	n := w.r.IntN(w.names)
	q := n / len(odd)
	p := fmt.Sprintf(odd[n%len(odd)], q)
	if strings.HasSuffix(p, "/") {
		p += "index.html"
	}
	for i := range q % 4 {
		p = fmt.Sprintf([]string{"d%d", "dir %d", "D%d", "ö%d"}[(q+i)%4], (q/4+i)%(3+w.names/400)) + "/" + p
	}
	return p
}

func (w *tree) join(p string) string { return filepath.Join(w.dir, filepath.FromSlash(p)) }

func (w *tree) add(p string) {
	if _, ok := w.at[p]; !ok {
		w.at[p] = len(w.files)
		w.files = append(w.files, p)
	}
}

func (w *tree) drop(p string) {
	i, ok := w.at[p]
	if !ok {
		return
	}
	last := w.files[len(w.files)-1]
	w.files[i], w.at[last] = last, i
	w.files = w.files[:len(w.files)-1]
	delete(w.at, p)
}

// content returns what no file had before.
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

// create makes a file, in a directory that may be new.
func (w *tree) create() {
	p := w.name()
	if _, ok := w.at[p]; ok {
		return
	}
	if os.MkdirAll(w.join(path.Dir(p)), 0o755) != nil {
		return // there is a file
	}
	if os.WriteFile(w.join(p), w.content(), 0o644) == nil {
		w.add(p)
	}
}

// any returns a file.
func (w *tree) any() string {
	if len(w.files) == 0 {
		return "nosuch"
	}
	return w.files[w.r.IntN(len(w.files))]
}

// change does something at random. What cannot be done is left undone.
func (w *tree) change() {
	p := w.any()
	kinds := []struct {
		name  string
		share int
		do    func(string) bool
	}{
		{"create", 20, func(string) bool { w.create(); return true }},
		{"write", 25, w.write},
		{"write slowly", 4, w.writeSlowly},
		{"replace", 10, w.replace},
		{"append", 5, w.grow},
		{"disguise", 3, w.disguise},
		{"touch", 5, w.touch},
		{"delete", 10, w.remove},
		{"move", 10, func(p string) bool { return w.move(p, w.name()) }},
		{"swap", 2, w.swap},
		{"make directory of", 1, w.makeDirectory},
		{"move directory", 1, w.moveDirectory},
		{"delete directory", 1, w.removeDirectory},
		{"bring directory", 1, w.bring},
	}
	total := 0
	for _, k := range kinds {
		total += k.share
	}
	n := w.r.IntN(total)
	for _, k := range kinds {
		if n -= k.share; n < 0 {
			if k.do(p) {
				w.done[k.name]++
			}
			return
		}
	}
}

func (w *tree) write(p string) bool {
	return os.WriteFile(w.join(p), w.content(), 0o644) == nil
}

// writeSlowly writes a file in parts.
func (w *tree) writeSlowly(p string) bool {
	f, err := os.Create(w.join(p))
	if err != nil {
		return false
	}
	defer f.Close()
	for range 3 {
		if _, err := f.Write(w.content()); err != nil {
			return false
		}
		time.Sleep(time.Duration(w.r.IntN(60)) * time.Millisecond) // this is what slow means
	}
	return true
}

// replace writes a file as rsync does.
func (w *tree) replace(p string) bool {
	next := w.join(p) + "~"
	return os.WriteFile(next, w.content(), 0o644) == nil && os.Rename(next, w.join(p)) == nil
}

func (w *tree) grow(p string) bool {
	f, err := os.OpenFile(w.join(p), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		return false
	}
	_, err = f.Write(w.content())
	return f.Close() == nil && err == nil
}

// disguise changes a file so that size and modification time stay.
func (w *tree) disguise(p string) bool {
	info, err := os.Stat(w.join(p))
	if err != nil || info.Size() == 0 {
		return false
	}
	w.n++
	b := fmt.Appendf(nil, "%0*d", info.Size(), w.n)
	return os.WriteFile(w.join(p), b[:info.Size()], 0o644) == nil && os.Chtimes(w.join(p), time.Time{}, info.ModTime()) == nil
}

// touch changes nothing but the modification time.
func (w *tree) touch(p string) bool {
	return os.Chtimes(w.join(p), time.Time{}, time.Now().Add(-time.Duration(w.r.IntN(1e6))*time.Second)) == nil
}

func (w *tree) remove(p string) bool {
	if os.Remove(w.join(p)) != nil {
		return false
	}
	w.drop(p)
	return true
}

// move moves a file, perhaps over another one.
func (w *tree) move(from, to string) bool {
	if os.MkdirAll(w.join(path.Dir(to)), 0o755) != nil || os.Rename(w.join(from), w.join(to)) != nil {
		return false
	}
	w.drop(from)
	w.add(to)
	return true
}

// swap exchanges two files.
func (w *tree) swap(a string) bool {
	b, between := w.any(), w.join("swapped~")
	if a == b {
		return false
	}
	return os.Rename(w.join(a), between) == nil && os.Rename(w.join(b), w.join(a)) == nil && os.Rename(between, w.join(b)) == nil
}

// makeDirectory makes a directory of a file.
func (w *tree) makeDirectory(p string) bool {
	if strings.Count(p, "/") > 5 || !w.remove(p) || os.Mkdir(w.join(p), 0o755) != nil || !w.write(p+"/in") {
		return false
	}
	w.add(p + "/in")
	return true
}

// below returns the files of a directory.
func (w *tree) below(dir string) []string {
	return slices.DeleteFunc(slices.Clone(w.files), func(p string) bool { return !strings.HasPrefix(p, dir+"/") })
}

// many is how many files come, go or move with their directory at most.
func (w *tree) many() int { return 20 + w.names/200 }

// moveDirectory moves a directory with all that it has, if that is not much; the place is
// new.
func (w *tree) moveDirectory(p string) bool {
	dir := path.Dir(p)
	to := fmt.Sprint("moved ", w.n)
	if w.r.IntN(3) > 0 {
		to = path.Join(path.Dir(w.any()), to)
	}
	below := w.below(dir)
	if dir == "." || strings.HasPrefix(to, dir+"/") || strings.Count(to, "/") > 3 || len(below) > w.many() || os.Rename(w.join(dir), w.join(to)) != nil {
		return false
	}
	for _, p := range below {
		w.drop(p)
		w.add(to + strings.TrimPrefix(p, dir))
	}
	return true
}

// removeDirectory removes a directory with all that it has, if that is not much.
func (w *tree) removeDirectory(p string) bool {
	dir := path.Dir(p)
	below := w.below(dir)
	if dir == "." || len(below) > w.many() || os.RemoveAll(w.join(dir)) != nil {
		return false
	}
	for _, p := range below {
		w.drop(p)
	}
	return true
}

// bring moves a directory with many files into the tree, all at once.
func (w *tree) bring(string) bool {
	w.n++
	next, to := w.join("next~"), fmt.Sprint("brought ", w.n)
	if os.MkdirAll(filepath.Join(next, "deep"), 0o755) != nil {
		return false
	}
	var brought []string
	for i := range 1 + w.r.IntN(w.many()) {
		name := fmt.Sprintf([]string{"%d", "deep/%d"}[i%2], i)
		if os.WriteFile(filepath.Join(next, name), w.content(), 0o644) != nil {
			return false
		}
		brought = append(brought, to+"/"+name)
	}
	if os.Rename(next, w.join(to)) != nil {
		return false
	}
	for _, p := range brought {
		w.add(p)
	}
	return true
}

// keep changes the tree for some steps, some of them in bursts. It returns when that is
// done.
func (w *tree) keep(steps int, pause time.Duration) {
	for burst := 0; steps > 0; steps-- {
		w.change()
		if burst > 0 {
			burst--
			continue
		}
		if w.r.IntN(40) == 0 {
			burst = w.r.IntN(40)
		}
		time.Sleep(time.Duration(w.r.Int64N(int64(2 * pause)))) // the pace of changes, not a wait for anything
	}
	w.prune()
}

// prune keeps the number of files about the same.
func (w *tree) prune() {
	for len(w.files) > w.names {
		w.remove(w.any())
	}
}

// start is keep in a goroutine of its own. done returns whether it has ended.
func (w *tree) start(steps int, pause time.Duration) (done func() bool) {
	var wg sync.WaitGroup
	ended := make(chan struct{})
	wg.Go(func() {
		defer close(ended)
		w.keep(steps, pause)
	})
	w.t.Cleanup(wg.Wait)
	return func() bool {
		select {
		case <-ended:
			return true
		default:
			return false
		}
	}
}

// contents returns the SHA-256 of each file that there is. Nobody changes the tree now.
func (w *tree) contents() map[string]string {
	w.t.Helper()
	all, err := contents(w.dir)
	if err != nil {
		w.t.Fatal(err)
	}
	known := slices.Sorted(slices.Values(w.files))
	if found := slices.Sorted(maps.Keys(all)); !slices.Equal(found, known) {
		w.t.Fatalf("the tree has %d files, and ought to have %d", len(found), len(known))
	}
	return all
}

// contents returns the SHA-256 of each file of a directory, without what is a program's
// own.
func contents(dir string) (map[string]string, error) {
	all := map[string]string{}
	err := hubtest.EachFile(dir, func(name string, b []byte) error {
		all[name] = sum(b)
		return nil
	})
	return all, err
}
