package jsonbody

import (
	"errors"
	"io"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/iotest"
)

func TestRead(t *testing.T) {
	for body, want := range map[string]string{
		`{"a":1}`: "", " {\"a\":1}\n": "", `{}`: "",
		``: "EOF", `{"b":1}`: `unknown field "b"`, `{"a":1} {}`: "there is more text after the JSON value", `{"a":1}x`: "there is more text after the JSON value", `{"a":"x"}`: "cannot unmarshal", `{"a":`: "unexpected EOF",
	} {
		var v struct {
			A int `json:"a"`
		}
		err := Read(strings.NewReader(body), &v)
		if want == "" && err == nil || want != "" && err != nil && strings.Contains(err.Error(), want) {
			continue
		}
		t.Errorf("%q: %v, want %q", body, err, want)
	}
	if err := Read(strings.NewReader(""), new(int)); err != io.EOF {
		t.Errorf("an empty body: %v", err)
	}
	lost := errors.New("lost")
	if err := Read(iotest.ErrReader(lost), new(int)); !errors.Is(err, lost) {
		t.Errorf("a reader that fails: %v", err)
	}
}

func TestWrite(t *testing.T) {
	w := httptest.NewRecorder()
	Write(w, 202, map[string]int{"a": 1})
	if w.Code != 202 || w.Body.String() != "{\"a\":1}\n" || w.Header().Get("Content-Type") != "application/json" || w.Header().Get("Cache-Control") != "no-store" {
		t.Errorf("%d %v %s", w.Code, w.Header(), w.Body)
	}
}
