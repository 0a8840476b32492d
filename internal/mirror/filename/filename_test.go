package filename

import (
	"path/filepath"
	"strings"
	"testing"
)

// pathOwners records the assigned paths, as a mirror does.
type pathOwners map[string]string // loc by path in lower case

type usedPaths struct {
	pathOwners
	loc string
}

func (t usedPaths) File(path string) bool {
	loc, ok := t.pathOwners[strings.ToLower(path)]
	return ok && loc != t.loc
}

func (t usedPaths) Dir(path string) bool {
	for p := range t.pathOwners {
		if strings.HasPrefix(p, strings.ToLower(path)+"/") {
			return true
		}
	}
	return false
}

func (g pathOwners) choose(t testing.TB, n Names, loc string) string {
	t.Helper()
	path, err := n.Choose(loc, usedPaths{g, loc})
	if err != nil {
		t.Fatalf("%s: %v", loc, err)
	}
	g[strings.ToLower(path)] = loc
	return path
}

func TestPath(t *testing.T) {
	for _, test := range []struct{ strip, loc, want string }{
		{"", "https://example.org/a/b.pdf", "example.org/a/b.pdf"},
		{"", "http://example.org/a", "http=example.org/a"},
		{"", "http://example.org:8080/a", "http=example.org+8080/a"},
		{"", "https://[2001:db8::1]:8443/a", "[2001+db8++1]+8443/a"},
		{"", "https://user:pa+ss=@example.org/", "user+pa%~2Bss%~3D@example.org/%~index"},
		{"", "https://example.org", "example.org/%~root"},
		{"", "https://example.org?q", "example.org/%~root%~3Fq"},
		{"", "https://example.org/", "example.org/%~index"},
		{"", "https://example.org/?q", "example.org/%~3Fq"},
		{"", "https://example.org/a/", "example.org/a/%~index"},
		{"", "https://example.org/a//b", "example.org/a/%~empty/b"},
		{"", "https://example.org/a?v=1/2&x", "example.org/a%~3Fv=1%~2F2&x"},
		{"", "https://example.org/a#b/c", "example.org/a#b%~2Fc"},
		{"", "https://example.org/../../etc/passwd", "example.org/.%~2E/.%~2E/etc/passwd"},
		{"", "https://../x", ".%~2E/x"},
		{"", "https://example.org/./a", "example.org/%~2E/a"},
		{"", "https://example.org/%2e%2e/%2F%00", "example.org/%2e%2e/%2F%00"},
		{"", "https://example.org/C:/x", "example.org/C%~3A/x"},
		{"", "https://example.org/a.", "example.org/a%~2E"},
		{"", "https://example.org/nul.txt/Con", "example.org/%~=nul.txt/%~=Con"},
		{"", "https://com1/x", "%~=com1/x"},
		{"", "https://example.org/RSMIRR~1/a~2.htm", "example.org/%~=RSMIRR~1/%~=a~2.htm"},
		{"", "https://example.org/a~b~12.c", "example.org/%~=a~b~12.c"},
		{"", "https://example.org/~1/", "example.org/%~=~1/%~index"},
		{"", "https://a~1/x", "%~=a~1/x"},
		{"", "https://example.org/~jane/longname~1/a~1.html/a~1b/a~/a~1.b.c", "example.org/~jane/longname~1/a~1.html/a~1b/a~/a~1.b.c"},
		{"https://example.org/", "https://example.org/rsmirr~1/ledger", "%~=rsmirr~1/ledger"},
		{"", "https://.rsmirror/ledger", "%~2Ersmirror/ledger"},
		{"https://example.org/pub/", "https://example.org/pub/a/b", "a/b"},
		{"https://example.org/pub/", "https://example.org/pub/", "%~index"},
		{"https://example.org/pub/", "https://example.org/pub/.RSmirror/x", "%~2ERSmirror/x"},
		{"https://example.org/pub/", "https://example.org/a", "%~other/example.org/a"},
		{"https://example.org/pub/", "https://example.org/pub//x", "%~empty/x"},
		{"https://example.org/pub/", "https://example.org/pub/../x", ".%~2E/x"},
	} {
		t.Run(test.loc, func(t *testing.T) {
			n := Names{Strip: test.strip}
			got, err := n.Path(test.loc)
			if err != nil || got != test.want {
				t.Errorf("Path(%q) = %q, %v, want %q", test.loc, got, err, test.want)
			}
			if loc, ok := n.Loc(got); !ok || loc != test.loc {
				t.Errorf("Loc(%q) = %q, %v, want %q", got, loc, ok, test.loc)
			}
		})
	}
	for _, loc := range []string{"", "a/b", "/etc/passwd", "urn:isbn:1", "ftp://example.org/a", "file:///etc/passwd", "https://example.org/a%~index", "https://example.org/\x00", "https://", `https://example.org/a\b`} {
		if path, err := (Names{}).Path(loc); err == nil {
			t.Errorf("Path(%q) = %q, want an error", loc, path)
		}
	}
}

func TestChoose(t *testing.T) {
	g := pathOwners{}
	for _, test := range []struct{ loc, want string }{
		{"https://h/a", "h/a"},
		{"https://h/a/b", "h/a%~dir/b"},
		{"https://h/a/B", "h/a%~dir/%~42%~case"},
		{"https://h/c/d", "h/c/d"},
		{"https://h/c", "h/c%~file"},
		{"https://h/C", "h/%~43%~case"},
		{"https://H/a", "%~48/a%~case"},
		{"https://h/c/d", "h/c/d"}, // repeated
		{"https://X/a", "X/a"},
		{"https://x/a", "x/a%~case"},
	} {
		t.Run(test.loc, func(t *testing.T) {
			got := g.choose(t, Names{}, test.loc)
			if got != test.want {
				t.Errorf("Choose(%q) = %q, want %q", test.loc, got, test.want)
			}
			if loc, ok := (Names{}).Loc(got); !ok || loc != test.loc {
				t.Errorf("Loc(%q) = %q, %v, want %q", got, loc, ok, test.loc)
			}
		})
	}
}

func TestChooseLongPaths(t *testing.T) {
	g := pathOwners{}
	long := strings.Repeat("x", 300)
	paths := map[string]bool{}
	for _, loc := range []string{
		"https://h/" + long + "1.pdf", "https://h/" + long + "2.pdf", "https://h/" + long + "/a", "https://h/" + long + "/b?" + long,
		"https://h/" + strings.Repeat("a/", 1000) + "1.pdf", "https://h/" + strings.Repeat("a/", 1000) + "2.pdf", "https://h/" + strings.Repeat("a/", 1000) + "2.PDF",
		"https://h/" + strings.Repeat(":", 1800), "https://" + strings.Repeat("h", 300) + "/a",
	} {
		path := g.choose(t, Names{}, loc)
		checkSafe(t, path)
		if paths[path] {
			t.Errorf("path %s was assigned twice", path)
		}
		paths[path] = true
		if strings.HasSuffix(loc, "1.pdf") && !strings.HasSuffix(path, ".pdf") {
			t.Errorf("path %s has no extension, want .pdf", path)
		}
	}
}

// checkSafe fails the test unless a path is safe and below the directory.
func checkSafe(t *testing.T, path string) {
	t.Helper()
	if !filepath.IsLocal(path) || len(path) > 2000 || strings.ContainsAny(path, "\\:*?\"<>|\x00") {
		t.Errorf("path %q is not safe", path)
	}
	segments := strings.Split(path, "/")
	for _, s := range segments {
		if s == "" || s == "." || s == ".." || len(s) > 255 || strings.HasSuffix(s, ".") || strings.HasSuffix(s, " ") {
			t.Errorf("segment %q of %q is not safe", s, path)
		}
		if stem, _, _ := strings.Cut(s, "."); reserved(stem) {
			t.Errorf("segment %q of %q is a device of Windows", s, path)
		}
	}
	if strings.EqualFold(segments[0], State) {
		t.Errorf("path %q is in the directory of the mirror's own data", path)
	}
}

// FuzzChoose checks that every path is safe, that no two resources share one on any file system,
// that no file has the name of a directory, and that Loc reverses Choose.
func FuzzChoose(f *testing.F) {
	for _, seed := range []string{
		"a a/b a/b/c A A/b a/B", "x? x?y x?y/z x#y", ". .. ./a ../a %2e%2e/a", "con CON con.txt com1/a", "/ // a/ a// a//b",
		"a%~file a%~dir/b a%~case", "%41 A %c3 %C3", ".rsmirror/a .RSMIRROR/a", "a. a.. a: a+ a=",
		strings.Repeat("x", 199) + " " + strings.Repeat("x", 201) + " " + strings.Repeat("X", 201),
	} {
		f.Add(seed, "https://h/", "")
		f.Add(seed, "http://h:80/a/", "http://h:80/a/")
		f.Add(seed, "https://", "https://h/")
	}
	f.Fuzz(func(t *testing.T, tails, base, strip string) {
		n := Names{Strip: strip}
		if strip != "" && !strings.HasSuffix(strip, "/") {
			return
		}
		if strip != "" {
			if _, err := n.Path(strip); err != nil {
				return
			}
		}
		g := pathOwners{}
		paths := map[string]string{}
		for _, tail := range strings.Fields(tails) {
			loc := base + tail
			path, err := n.Choose(loc, usedPaths{g, loc})
			if err != nil {
				continue
			}
			checkSafe(t, path)
			if paths[loc] != "" && paths[loc] != path {
				t.Errorf("Choose(%q) = %q, then %q, want the same path", loc, paths[loc], path)
			}
			if before, ok := g[strings.ToLower(path)]; ok && before != loc {
				t.Errorf("Choose(%q) and Choose(%q) = %q, want different paths", before, loc, path)
			}
			g[strings.ToLower(path)] = loc
			paths[loc] = path
			if back, ok := n.Loc(path); ok && back != loc || !ok && !strings.Contains(path, markHash) {
				t.Errorf("Loc(%q) = %q, %v, want %q", path, back, ok, loc)
			}
		}
		for p := range g {
			for q := range g {
				if strings.HasPrefix(q, p+"/") {
					t.Errorf("path %q is a file and a directory of %q", p, q)
				}
			}
		}
	})
}
