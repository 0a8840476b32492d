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
		t.Run(test.kind, func(t *testing.T) {
			got, err := Apply(test.kind, []byte(test.content), []byte(test.patch))
			if err != nil || string(got) != test.want {
				t.Errorf("Apply(%q, %q, %q) = %q, %v, want %q", test.kind, test.content, test.patch, got, err, test.want)
			}
		})
	}
	bomb := `[{"op":"copy","from":"/a","path":"/a/-"}` + strings.Repeat(`,{"op":"copy","from":"/a","path":"/a/-"}`, 40) + `]` // each doubles the size
	for name, test := range map[string]struct{ kind, content, patch string }{
		"unsupported type":      {"text/x-diff", `{}`, `--- a`},
		"empty type":            {"", `{}`, `[]`},
		"content is not JSON":   {jsonPatch, `text`, `[{"op":"remove","path":"/a"}]`},
		"patch is not an array": {jsonPatch, `{}`, `{}`},
		"missing path":          {jsonPatch, `{}`, `[{"op":"remove","path":"/a"}]`},
		"failed test operation": {jsonPatch, `{"a":1}`, `[{"op":"test","path":"/a","value":2}]`},
		"expanding copies":      {jsonPatch, `{"a":["` + strings.Repeat("x", 1000) + `"]}`, bomb},
		"invalid merge patch":   {mergePatch, `{}`, `[`},
		"content too large":     {mergePatch, `{"a":"` + strings.Repeat("x", MaxSize) + `"}`, `{}`},
	} {
		if got, err := Apply(test.kind, []byte(test.content), []byte(test.patch)); err == nil {
			t.Errorf("Apply() with %s = %.80q, want an error", name, got)
		}
	}
}

// FuzzApply checks that Apply returns an error or a content for every input.
func FuzzApply(f *testing.F) {
	f.Add(true, []byte(`{"a":[1,{"b":2}]}`), []byte(`[{"op":"move","from":"/a/1/b","path":"/c"},{"op":"copy","from":"/a","path":"/a/0"}]`))
	f.Add(false, []byte(`{"a":{"b":null}}`), []byte(`{"a":{"b":1}}`))
	f.Fuzz(func(t *testing.T, operations bool, content, patch []byte) {
		kind := mergePatch
		if operations {
			kind = jsonPatch
		}
		if got, err := Apply(kind, content, patch); err == nil && len(got) == 0 {
			t.Errorf("Apply(%q, %q, %q) is empty", kind, content, patch)
		}
	})
}
