package patch

import (
	"strings"
	"testing"
)

const (
	jsonPatch  = "application/json-patch+json"
	mergePatch = "application/merge-patch+json; charset=utf-8"
)

func TestApply(t *testing.T) {
	for _, test := range []struct{ kind, content, patch, want string }{
		{jsonPatch, `{"a":1,"b":[1,2]}`, `[{"op":"replace","path":"/a","value":"<&>"},{"op":"add","path":"/b/-","value":3},{"op":"test","path":"/b/0","value":1}]`, `{"a":"<&>","b":[1,2,3]}`},
		{"application/json-patch", `{"a":1}`, `[{"op":"remove","path":"/a"}]`, `{}`},
		{mergePatch, `{"a":1,"b":{"c":2,"d":3}}`, `{"b":{"c":null},"e":4}`, `{"a":1,"b":{"d":3},"e":4}`},
	} {
		got, err := Apply(test.kind, []byte(test.content), []byte(test.patch))
		if err != nil || string(got) != test.want {
			t.Errorf("%s of %s by %s is %s, %v; want %s", test.kind, test.content, test.patch, got, err, test.want)
		}
	}
	bomb := `[{"op":"copy","from":"/a","path":"/a/-"}` + strings.Repeat(`,{"op":"copy","from":"/a","path":"/a/-"}`, 40) + `]` // each doubles it
	for name, test := range map[string]struct{ kind, content, patch string }{
		"another type":      {"text/x-diff", `{}`, `--- a`},
		"no type":           {"", `{}`, `[]`},
		"no JSON":           {jsonPatch, `text`, `[{"op":"remove","path":"/a"}]`},
		"no patch":          {jsonPatch, `{}`, `{}`},
		"not there":         {jsonPatch, `{}`, `[{"op":"remove","path":"/a"}]`},
		"a test that fails": {jsonPatch, `{"a":1}`, `[{"op":"test","path":"/a","value":2}]`},
		"a bomb":            {jsonPatch, `{"a":["` + strings.Repeat("x", 1000) + `"]}`, bomb},
		"no merge patch":    {mergePatch, `{}`, `[`},
		"too large":         {mergePatch, `{"a":"` + strings.Repeat("x", MaxSize) + `"}`, `{}`},
	} {
		if got, err := Apply(test.kind, []byte(test.content), []byte(test.patch)); err == nil {
			t.Errorf("%s: %.80s", name, got)
		}
	}
}

// Whatever a source sends makes an error, or a content.
func FuzzApply(f *testing.F) {
	f.Add(true, []byte(`{"a":[1,{"b":2}]}`), []byte(`[{"op":"move","from":"/a/1/b","path":"/c"},{"op":"copy","from":"/a","path":"/a/0"}]`))
	f.Add(false, []byte(`{"a":{"b":null}}`), []byte(`{"a":{"b":1}}`))
	f.Fuzz(func(t *testing.T, operations bool, content, patch []byte) {
		kind := mergePatch
		if operations {
			kind = jsonPatch
		}
		if got, err := Apply(kind, content, patch); err == nil && len(got) == 0 {
			t.Errorf("%q by %q is empty", content, patch)
		}
	})
}
