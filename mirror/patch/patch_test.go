package patch

import (
	"bytes"
	"encoding/json"
	"errors"
	"testing"
)

// The new content is written as the old one was. (Tests of package mirror have more.)
func TestApply(t *testing.T) {
	for _, test := range []struct{ old, patch, want string }{
		{`{"b":1,"a":[]}`, `[{"op":"add","path":"/a/0","value":"<&>"}]`, `{"b":1,"a":["<&>"]}`},
		{"[1, {}]\r\n", `[{"op":"add","path":"/1/x","value":[2]}]`, "[1, {\"x\": [2]}]\r\n"},
		{"7", `[{"op":"replace","path":"","value":{"a":1}}]`, ""},
	} {
		c, err := Of([]byte(test.old))
		if err != nil {
			t.Fatalf("%q: %v", test.old, err)
		}
		if got, err := c.Apply([]byte(test.patch), 1000); err == nil && string(got) != test.want || err != nil && test.want != "" {
			t.Errorf("%q became %q, %v", test.old, got, err)
		}
	}
	for _, old := range []string{"", "<a/>", `{"a" : 1}`, "{}{}"} {
		if _, err := Of([]byte(old)); !errors.Is(err, ErrStyle) {
			t.Errorf("%q: the error is %v", old, err)
		}
	}
}

// Whatever the texts are, patching ends, and what it makes is JSON in the style of the old text.
func FuzzPatch(f *testing.F) {
	f.Add(`{"a": [1, 2]}`, `[{"op":"move","from":"/a/0","path":"/b"}]`)
	f.Add("[\n  1\n]\n", `[{"op":"copy","from":"","path":"/-"},{"op":"add","path":"/0","value":{"":"\u2028"}}]`)
	f.Fuzz(func(t *testing.T, old, patch string) {
		c, err := Of([]byte(old))
		if err != nil {
			return
		}
		text, err := c.Apply([]byte(patch), 1<<20)
		if err != nil {
			return
		}
		var compact bytes.Buffer
		if err := json.Compact(&compact, text); err != nil || !bytes.Equal(c.style(compact.Bytes()), text) {
			t.Errorf("%q became %q: %v", old, text, err)
		}
	})
}
