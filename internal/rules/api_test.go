package rules

import (
	"fmt"
	"go/importer"
	"go/token"
	"go/types"
	"io"
	"os"
	"strings"
	"testing"
)

// TestAPI checks that the public API names no type of an internal package: not in a signature,
// an exported field or a method, and not through an alias.
func TestAPI(t *testing.T) {
	exports := map[string]string{} // files with export data, by import path
	for _, line := range lines(t, "go", "list", "-deps", "-export", "-f", "{{.ImportPath}} {{.Export}}", "./resourcesync", "./feed", "./client", "./client/disk") {
		path, file, _ := strings.Cut(line, " ")
		exports[path] = file
	}
	from := importer.ForCompiler(token.NewFileSet(), "gc", func(path string) (io.ReadCloser, error) { return os.Open(exports[path]) })
	w := &apiWalker{t: t, seen: map[types.Type]bool{}}
	for _, name := range []string{"resourcesync", "feed", "client", "client/disk"} {
		pkg, err := from.Import(module + name)
		if err != nil {
			t.Fatal(err)
		}
		for _, object := range pkg.Scope().Names() {
			if o := pkg.Scope().Lookup(object); o.Exported() {
				w.walk(name+"."+object, o.Type())
			}
		}
	}
	if len(w.seen) < 200 {
		t.Errorf("got %d types, want at least 200; does the walk stop early?", len(w.seen))
	}
}

// An apiWalker reports internal types that can be reached by exported names.
type apiWalker struct {
	t    *testing.T
	seen map[types.Type]bool
}

// walk visits a type, and the types of its exported parts. where says how it was reached.
func (w *apiWalker) walk(where string, t types.Type) {
	if w.seen[t] {
		return
	}
	w.seen[t] = true
	switch t := t.(type) {
	case *types.Alias:
		w.named(where, t.Obj())
		w.walk(where, t.Rhs())
	case *types.Named:
		w.named(where, t.Obj())
		for arg := range t.TypeArgs().Types() {
			w.walk(where, arg)
		}
		for p := range t.TypeParams().TypeParams() {
			w.walk(where, p)
		}
		if path := t.Obj().Pkg(); path == nil || !strings.HasPrefix(path.Path()+"/", module) {
			return // its own API is not ours
		}
		for m := range t.Methods() {
			if m.Exported() {
				w.walk(where+"."+m.Name(), m.Type())
			}
		}
		w.walk(where, t.Underlying())
	case *types.Struct:
		for f := range t.Fields() {
			if f.Exported() || f.Embedded() {
				w.walk(where+"."+f.Name(), f.Type())
			}
		}
	case *types.Interface:
		for m := range t.Methods() {
			if m.Exported() {
				w.walk(where+"."+m.Name(), m.Type())
			}
		}
		for e := range t.EmbeddedTypes() {
			w.walk(where, e)
		}
	case *types.Signature:
		for p := range t.TypeParams().TypeParams() {
			w.walk(where, p)
		}
		for _, list := range []*types.Tuple{t.Params(), t.Results()} {
			for v := range list.Variables() {
				w.walk(where, v.Type())
			}
		}
	case *types.Map:
		w.walk(where, t.Key())
		w.walk(where, t.Elem())
	case interface{ Elem() types.Type }: // pointer, slice, array, channel
		w.walk(where, t.Elem())
	case *types.TypeParam:
		w.walk(where, t.Constraint())
	case *types.Union:
		for term := range t.Terms() {
			w.walk(where, term.Type())
		}
	case *types.Basic:
	default:
		w.t.Errorf("%s: %s", where, fmt.Sprintf("cannot walk %T", t))
	}
}

// named reports a type of an internal package.
func (w *apiWalker) named(where string, o *types.TypeName) {
	if o.Pkg() != nil && strings.HasPrefix(o.Pkg().Path(), module) && strings.Contains(o.Pkg().Path(), "/internal/") {
		w.t.Errorf("%s names the internal type %s.%s", where, o.Pkg().Path(), o.Name())
	}
}
